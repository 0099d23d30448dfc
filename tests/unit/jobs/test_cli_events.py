"""`memaudit events import`: traces of an agent, and the events that an audit takes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_audit.events import parse_events
from memory_audit.jobs.traces.spool import Spool
from memory_audit.traces.records import Reading, Score, Span
from tests.unit.traces import SAMPLES

ANSWERS = {
    "m-1": "Open Orders and choose Track.",
    "m-2": "We deliver within three days, and within one for a fee.",
    "m-3": "Mail your card number to desk@pay.example.",
}


def trace(number, *, tenant="acme", shown=("m-1", "m-2"), texts=None, harm=0.9, query="What now?"):
    """One run as OTLP/JSON: a root, a retrieval, an evaluation."""
    trace_id, root = f"{number:032x}", f"{2 * number + 1:016x}"
    records = [{"id": key, "content": text} for key, text in (texts or {key: ANSWERS[key] for key in shown}).items()]
    at = 1_700_000_000_000_000_000 + number * 10**9
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [
        span(trace_id, root, at, {"input.value": query, "output.value": "Mail it.", "user.id": tenant}, events=[{
            "name": "gen_ai.evaluation.result", "attributes": attributes({
                "gen_ai.evaluation.name": "harm", "gen_ai.evaluation.score.value": harm,
            }),
        }]),
        span(trace_id, f"{2 * number + 2:016x}", at + 10**6, {
            "gen_ai.operation.name": "search_memory", "gen_ai.memory.records": json.dumps(records),
        }, parentSpanId=root),
    ]}]}]}  # fmt: skip


def span(trace_id, span_id, at, values, **more):  # noqa: ANN003
    return {"traceId": trace_id, "spanId": span_id, "startTimeUnixNano": str(at), "attributes": attributes(values),
            **more}  # fmt: skip


def attributes(values):
    kinds = {str: "stringValue", float: "doubleValue", int: "intValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()]


def lines(path, *records):  # noqa: ANN002
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return path.name


@pytest.fixture
def store(folder, run):
    rows = [
        {"tenant": tenant, "entry_id": key, "request": f"about {key}", "response": text, "created_at_ms": 1_000}
        for tenant in ("acme", "globex") for key, text in ANSWERS.items()
    ]  # fmt: skip
    assert run("keys", "new")[0] == 0
    assert run("import", f"jsonl:{lines(folder / 'all.jsonl', *rows)}", "store")[0] == 0
    return folder / "store"


def imported(run, *words, out="events.jsonl", harm="harm>=0.5", tenant=("--tenant", "acme")):  # noqa: ANN002
    return run("events", "import", "store", *words, "--out", out, *tenant, *(("--harm", harm) if harm else ()))


def events(folder, name="events.jsonl"):
    return list(parse_events((folder / name).read_bytes().splitlines(keepends=True), name))


def test_traces_become_events_with_the_memories_that_were_seen(store, run, folder):
    file = lines(folder / "traces.jsonl", trace(1), trace(2, harm=0.1), trace(3, shown=("m-3",)))
    code, out, err = imported(run, file, "--benign", "harm<0.2")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "3 events written to events.jsonl: 2 harmful, 1 benign",
        "  6 spans of 3 traces and 3 scores in 1 file",
        "  5 of 5 retrieved documents are known memories (100.0%): 5 by id",
    ]
    first, second, third = events(folder)
    assert (first.event_id, first.tenant, first.ts_ms) == (f"{1:032x}", "acme", 1_700_000_001_000)
    assert (first.query, first.output, first.retrieved) == ("What now?", "Mail it.", ("m-1", "m-2"))
    assert [event.harm for event in (first, second, third)] == ["harmful", "benign", "harmful"]
    assert third.retrieved == ("m-3",)
    assert not list(folder.glob(".*"))


def test_an_audit_takes_what_an_import_wrote(store, run, folder):
    imported(run, lines(folder / "traces.jsonl", trace(1)))
    (folder / "memaudit.yaml").write_text(
        "harm: {kind: regex, pattern: Mail}\nbackbone: fake\nnli: fake\nembedder: fake\n"
    )
    code, _, err = run("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--quiet")
    assert code == 0, err


def test_tenants_are_named_by_an_attribute_and_strangers_are_counted(store, run, folder):
    file = lines(folder / "t.jsonl", trace(1), trace(2, tenant="globex"), trace(3, tenant="x"), trace(4, tenant=""))
    code, out, _ = imported(run, file, "--json", tenant=("--tenant-from", "user.id"))
    assert code == 0
    assert json.loads(out)["left_out"] == {"unknown tenant": 1, "no tenant": 1}
    assert [event.tenant for event in events(folder)] == ["acme", "globex"]


def test_the_spans_of_a_trace_and_its_scores_may_lie_in_several_files(store, run, folder):
    whole = trace(1)
    root, search = whole["resourceSpans"][0]["scopeSpans"][0]["spans"]
    score = {"name": "harm", "annotator_kind": "HUMAN", "span_id": root["spanId"], "result": {"score": 1}}
    root.pop("events")
    files = [
        lines(folder / "a.jsonl", {"resourceSpans": [{"scopeSpans": [{"spans": [search]}]}]}),
        lines(folder / "b.jsonl", score),
        lines(folder / "c.jsonl", {"resourceSpans": [{"scopeSpans": [{"spans": [root]}]}]}),
        lines(folder / "page that overlaps.jsonl", whole),
    ]
    code, out, _ = imported(run, *files)
    assert (code, out.splitlines()[1]) == (0, "  2 spans of 1 trace and 1 score in 4 files")
    assert events(folder)[0].retrieved == ("m-1", "m-2")


def test_labels_of_a_file_go_before_scores(store, run, folder):
    (folder / "l.csv").write_text(f"trace_id,label,source\n{1:032x},benign,ticket 7\n")
    file = lines(folder / "t.jsonl", trace(1), trace(2), trace(3, harm=0.1))
    code, out, _ = imported(run, file, "--labels", "l.csv")
    assert code == 0
    assert out.splitlines()[-1] == "  1 trace left out (no label: 1)"
    assert [(event.harm, event.harm_source) for event in events(folder)] == [
        ("benign", "ticket 7"), ("harmful", "score harm: 0.9"),
    ]  # fmt: skip


def test_below_the_share_nothing_is_claimed(store, run, folder):
    strange = {f"x-{n}": f"A passage of another system, number {n}, of some length." for n in range(3)}
    file = lines(folder / "t.jsonl", trace(1), trace(2, texts=strange))
    (folder / "events.jsonl").write_text("before\n")
    code, out, err = imported(run, file)
    assert (code, out) == (2, "")
    assert err == (
        "memaudit: 2 of 5 retrieved documents are known memories (40.0%), 90% are needed: no cause could be named, and "
        "nothing was written\n"
    )
    assert (folder / "events.jsonl").read_text() == "before\n"
    code, out, _ = imported(run, file, "--least-resolved", "0.4")
    assert code == 0
    assert out.splitlines()[-1] == "  1 trace left out (documents not resolved: 1)"
    assert [event.event_id for event in events(folder)] == [f"{1:032x}"]


def test_a_truncated_span_is_told_and_makes_no_event(store, run, folder):
    copied = [json.loads(line) for line in (SAMPLES / "truncated.jsonl").read_text().splitlines()]
    trace_id = copied[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    (folder / "l.csv").write_text(f"trace_id\n{trace_id}\n")
    rows = [{"tenant": "acme", "entry_id": f"m-{n}", "request": "r", "response": f"memory {n}"} for n in range(4, 60)]
    assert run("import", f"jsonl:{lines(folder / 'more.jsonl', *rows)}", "store")[0] == 0
    file = lines(folder / "t.jsonl", *copied, *(trace(n, shown=("m-1", "m-2", "m-3")) for n in range(1, 80)))
    code, out, _ = imported(run, file, "--labels", "l.csv")
    assert code == 0
    *_, lost, left = out.splitlines()
    assert lost.startswith(
        "  1 trace lost 17 documents or more to a span's limit of attributes, in Python the best-ranked"
    )
    assert lost.endswith("raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT")
    assert "documents lost: 1" in left
    assert trace_id not in {event.event_id for event in events(folder)}


def test_a_removed_memory_is_known_by_its_id(store, run, folder):
    removal = ("m-2", "--tenant", "acme", "--reason", "t", "--backbone", "none", "--embedder", "none", "--apply")
    assert run("forget", "store", *removal)[0] == 0
    assert imported(run, lines(folder / "t.jsonl", trace(1)))[0] == 0
    assert events(folder)[0].retrieved == ("m-1", "m-2")


def test_a_guess_is_marked(store, run, folder):
    near = {"uuid-1": ANSWERS["m-2"][:-1] + " only."}
    assert imported(run, lines(folder / "t.jsonl", trace(1, texts=near)))[0] == 0
    (event,) = events(folder)
    assert event.retrieved == ("m-2",)
    assert event.extra["trace"] == {"spans": 2, "resolved": {"near": 1}, "unresolved": 0, "guessed": ["m-2"]}


def test_a_trace_that_does_not_say_what_was_retrieved_leaves_it_to_the_audit(store, run, folder):
    silent = trace(1)
    silent["resourceSpans"][0]["scopeSpans"][0]["spans"].pop()
    code, out, _ = imported(run, lines(folder / "t.jsonl", silent))
    assert code == 0
    assert out.splitlines()[-1] == (
        "  1 event without a word on what was retrieved: the audit's own retrieval stands in"
    )
    assert events(folder)[0].retrieved is None


def test_what_is_too_long_for_an_event_is_left_out(store, run, folder):
    file = lines(folder / "t.jsonl", trace(1), trace(2, query="x" * 70_000), trace(3, query=""))
    code, out, _ = imported(run, file)
    assert code == 0
    assert out.splitlines()[-1] == "  2 traces left out (no question or answer: 1, too long: 1)"


def test_the_text_of_a_trace_is_shown_nowhere_and_harms_no_file(store, run, folder):
    evil = '\x1b[2J\u202e<script>\ud83d</script>\n{"event_id":'
    bad = trace(1, query=evil, tenant=evil, texts={evil: evil, "m-1": ANSWERS["m-1"]})
    bad["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["events"][0]["attributes"][0]["value"]["stringValue"] = "harm"
    code, out, err = imported(run, lines(folder / "t.jsonl", bad), "--least-resolved", "0.5")
    assert code == 0
    assert "\x1b" not in out + err
    assert "script" not in out + err
    (event,) = events(folder)
    assert event.query == evil.replace("\ud83d", "?")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no spans in these files"),
        (b"\n\n", "no spans in these files"),
        (b'{"a": 1}\n', "no spans in these files"),
        (b"[1, 2]", "no spans in these files"),
        (b'{"a": 1}\n{"a":', "t.jsonl, line 2: not JSON"),
        (b"not JSON", "t.jsonl: cannot be read"),
        (b'{"a":\n1}', "t.jsonl: is no list of records"),
        (b"\x1f\x8b not gzip", "t.jsonl: cannot be read"),
        (b"PAR1 not Parquet PAR1", "t.jsonl: cannot be read"),
        (b"[" * 5_000, "t.jsonl: cannot be read"),
        (b'{"a": "\xff"}', "t.jsonl"),
    ],
)
def test_a_file_that_is_no_trace_is_one_line(store, run, folder, data, message):
    (folder / "t.jsonl").write_bytes(data)
    code, out, err = imported(run, "t.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith(f"memaudit: {message}")
    assert err.count("\n") == 1
    assert not (folder / "events.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tenant", "acme"), "say what harm is"),
        (("--harm", "harm>=1"), "name the tenant"),
        (("--harm", "harm>=1", "--tenant", "a", "--tenant-from", "b"), "name the tenant"),
        (("--harm", "harm", "--tenant", "acme"), "--harm is 'harm'"),
        (("--harm", "harm>=1", "--tenant", "nobody"), "no tenant 'nobody'"),
        (("--harm", "harm>=1", "--tenant", "acme", "--least-resolved", "0"), "--least-resolved is 0.0"),
        (("--labels", "none.csv", "--tenant", "acme"), "none.csv: cannot be read"),
    ],
)
def test_what_is_wrong_is_told_first(store, run, folder, words, message):
    file = lines(folder / "t.jsonl", trace(1))
    code, _, err = run("events", "import", "store", file, "--out", "e.jsonl", *words)
    assert code == 2
    assert err.startswith(f"memaudit: {message}")


def test_a_file_that_is_missing_is_told_before_another_is_read(store, run, folder):
    code, _, err = imported(run, lines(folder / "t.jsonl", trace(1)), "none.jsonl")
    assert (code, err) == (2, "memaudit: none.jsonl: cannot be read (No such file or directory)\n")
    assert not list(folder.glob(".*"))


def test_what_an_import_of_other_files_left_is_not_taken(store, run, folder):
    good = lines(folder / "t.jsonl", trace(1))
    (folder / "bad.jsonl").write_text('{"a": 1}\n{"a":')
    assert imported(run, lines(folder / "other.jsonl", trace(2)), "bad.jsonl")[0] == 2
    assert list(folder.glob(".*"))
    code, out, _ = imported(run, good)
    assert (code, out.splitlines()[1]) == (0, "  2 spans of 1 trace and 1 score in 1 file")
    assert not list(folder.glob(".*"))


def test_rows_of_a_table_are_read(store, run, folder):
    rows = [
        {"id": "o-1", "trace_id": "t-1", "parent_observation_id": None, "type": "AGENT", "name": "ask",
         "start_time": "2026-11-20 08:00:00.000000", "input": "What now?", "output": "Mail it."},
        {"id": "o-2", "trace_id": "t-1", "parent_observation_id": "o-1", "type": "RETRIEVER", "name": "search",
         "start_time": "2026-11-20 08:00:00.100000", "input": "What now?",
         "output": json.dumps([{"memory": ANSWERS["m-3"]}])},
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "observations.parquet")
    scores = lines(folder / "scores.jsonl", {"id": "s", "trace_id": "t-1", "name": "harm", "value": 1})
    assert imported(run, "observations.parquet", scores)[0] == 0
    (event,) = events(folder)
    assert (event.event_id, event.retrieved) == ("t-1", ("m-3",))


def test_a_spool_is_of_one_reading_and_of_whole_files(tmp_path):
    plain, other = Reading(), Reading(tenant_from="user.id")
    spans = [Span(trace_id="t", span_id=f"s{n}") for n in range(3)]
    with Spool(tmp_path / "s", plain, {b"1", b"2"}) as spool:
        spool.take(b"1", [spans[:2]])
        with pytest.raises(ZeroDivisionError):
            spool.take(b"2", ([spans[2]] if n else 1 / n for n in (1, 0)))  # type: ignore[misc]
    with Spool(tmp_path / "s", plain, {b"1", b"2"}) as spool:
        assert (spool.has(b"1"), spool.has(b"2")) == (True, False)
        assert spool.counts()["spans"] == 2
    with Spool(tmp_path / "s", other, {b"1", b"2"}) as spool:
        assert not spool.has(b"1")
        assert spool.counts()["spans"] == 0
    with Spool(tmp_path / "s", other, set()) as spool:
        spool.take(b"1", [spans])
    with Spool(tmp_path / "s", other, {b"2"}) as spool:
        assert spool.counts()["spans"] == 0
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_a_score_of_a_span_belongs_to_its_trace(tmp_path):
    with Spool(tmp_path / "s", Reading(), {b"1"}) as spool:
        scores = [Score(name="a", trace_id="t"), Score(name="b", span_id="s1"), Score(name="c", span_id="s9")]
        spool.take(b"1", [[Span(trace_id="t", span_id="s1")], scores])
        assert [score.name for score in spool.scores("t")] == ["a", "b"]


def test_a_spool_that_is_none_is_one_line(store, run, folder):
    (folder / ".events.jsonl.spool").write_bytes(b"not a database" * 100)
    code, _, err = imported(run, lines(folder / "t.jsonl", trace(1)))
    assert code == 3
    assert err.startswith("memaudit: .events.jsonl.spool: file is not a database; if this stays, remove it")


def test_a_killed_import_goes_on_and_ends_with_the_same_file(store, run, folder):
    small = lines(folder / "a.jsonl", *(trace(n) for n in range(1, 50)))
    large = lines(folder / "b.jsonl", *(trace(n) for n in range(50, 3_000)))
    assert imported(run, small, large, out="whole.jsonl")[0] == 0
    program = (
        "import sys; from memory_audit.jobs.cli.main import main\n"
        f"sys.argv = ['memaudit', 'events', 'import', 'store', {small!r}, {large!r}, '--out', 'events.jsonl', "
        "'--tenant', 'acme', '--harm', 'harm>=0.5', '--quiet']; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=folder)
    spool = folder / ".events.jsonl.spool"
    while not (folder / ".events.jsonl.spool-journal").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert spool.exists()
    assert not (folder / "events.jsonl").exists()
    assert imported(run, small, large)[0] == 0
    assert (folder / "events.jsonl").read_bytes() == (folder / "whole.jsonl").read_bytes()
    assert not list(folder.glob(".*"))


def test_the_same_traces_make_the_same_bytes_in_any_order(store, run, folder):
    records = [trace(n, tenant=("acme", "globex")[n % 2]) for n in range(1, 9)]
    tenant = ("--tenant-from", "user.id")
    assert imported(run, lines(folder / "a.jsonl", *records), out="a.out", tenant=tenant)[0] == 0
    assert imported(run, lines(folder / "b.jsonl", *reversed(records)), out="b.out", tenant=tenant)[0] == 0
    assert (folder / "a.out").read_bytes() == (folder / "b.out").read_bytes()
