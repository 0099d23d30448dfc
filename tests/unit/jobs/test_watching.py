"""What watches a run: JSON lines, status files and metrics, none of which holds a memory, a query or an answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from memory_audit.errors import DEFECT, AnswerError, IncompleteError, ModelError
from memory_audit.jobs.cli.main import app
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.groups import plan
from memory_audit.jobs.watching import status
from memory_audit.jobs.watching.progress import Reporter, stage, tally
from memory_audit.jobs.watching.run_metrics import RunMetrics
from memory_audit.jobs.watching.status import Status, groups_at_work
from memory_audit.jobs.watching.tally import Counts, Tally
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.services.retries import RETRIES
from memory_audit.provenance import durable
from memory_audit.snapshot.layout import bucket_of
from tests.audit_world import FAKES
from tests.unit.jobs.nightly.conftest import NIGHTLY
from tests.unit.jobs.test_cli import CONFIG, event, memories, write_lines

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"

TENANTS = [f"tenant-{number}" for number in range(4)]
BROKEN = min(TENANTS, key=bucket_of)
"""Audited first."""
NIGHT = ("nightly", "nightly.yaml", "--json")
AUDIT = ("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--metrics", "run.prom")

CANARY = re.compile(r"canary|POISON|HARM|printer|calm")

FINDINGS = re.compile(
    r"""(run|nights/night-\d+/audit-\w+)/
    (report\.html | report/.* | result\.json | blocks/.* | groups/[^/]+/(findings|results|replays)/.* |
     groups/[^/]+/search\.jsonl)
    | nights/night-\d+/events\.jsonl""",
    re.VERBOSE,
)
"""Where the texts of a run may be."""


class Quoting(FakeGenerator):
    """A backbone whose answers hold a canary, and which refuses one tenant with a line that quotes its memory."""

    def __init__(self, broken: str = BROKEN, error: type[Exception] = AnswerError) -> None:
        super().__init__(poisoned="HARM, says the canary", clean="fine, says the canary")
        self.model_id = "fake"
        self._broken, self._error = f"canary-{broken}", error

    async def generate(self, request):
        for message in request.messages:
            if self._broken in message.content:
                raise self._error(f"HTTP 400: {message.content}")
        RETRIES["backbone"] += 1
        return await super().generate(request)


def start_of(generator):
    return lambda _request, **_where: LocalExecutor(FAKES, generator)


@pytest.fixture
def desk(folder, set_up, monkeypatch):
    """A folder with the memories of four tenants, each in a group of its own, and a nightly job about them."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    rows = [
        {**row, "tenant": tenant, "request": f"{row['request']} canary-{tenant}",
         "response": f"{row['response']} canary-{tenant}"}
        for tenant in TENANTS for row in memories()
    ]  # fmt: skip
    write_lines(folder / "dump.jsonl", rows)
    query = "how do I handle case 3 of printer trouble"
    events = [event(f"e-{tenant}", tenant=tenant, query=f"{query} canary-{tenant}") for tenant in TENANTS]
    write_lines(folder / "events.jsonl", events)
    (folder / "nightly.yaml").write_text(f"{NIGHTLY}notify: {{metrics: metrics/memaudit.prom}}\n", encoding="utf-8")
    set_up(("keys", "new"), ("import", "jsonl:dump.jsonl", "store"))
    monkeypatch.setattr(plan, "EVENTS", 1)
    return folder


@pytest.fixture
def written(monkeypatch):
    """All that is put on disk in place of something, by path and in order: also what is gone when a command ends."""
    kept, replace = [], durable.replace

    def keep(final, data, **options):  # noqa: ANN003
        replace(final, data, **options)
        kept.append((str(final), final.read_bytes().decode(errors="replace")))

    monkeypatch.setattr(durable, "replace", keep)
    monkeypatch.setattr(status, "EVERY_S", 0.0)
    return kept


def text_of(path):
    return repr(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text(errors="replace")


def samples(path):
    families = text_string_to_metric_families(path.read_text())
    return {
        (sample.name, *(word for label, word in sample.labels.items() if label != "store")): sample.value
        for family in families for sample in family.samples
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "metrics"),
    [(AUDIT, IncompleteError.exit_code, {"run.prom"}), (NIGHT, 1, {"memaudit.prom", "memaudit-run.prom"})],
)
def test_no_text_of_a_memory_a_query_or_an_answer_is_in_what_watches_a_run(desk, run, written, words, code, metrics):  # noqa: PLR0917
    before = {path for path in desk.rglob("*") if path.is_file()}
    found, _, err = run("--log-format", "json", *words, start=start_of(Quoting()))
    assert found == code
    assert CANARY.search(err) is None
    (failed,) = [line for line in map(json.loads, err.splitlines()) if line["tenant"] == BROKEN]
    assert (failed["level"], failed["error"]) == ("error", "AnswerError")
    told = {path: text for path, text in written if path.endswith((".prom", "status.json")) or "/at-work/" in path}
    assert {path.rsplit("/", 1)[-1] for path in told} >= {"status.json", *metrics}
    assert sum("/at-work/" in path for path in told) == len(TENANTS)
    for path, text in written:
        assert path not in told or CANARY.search(text) is None, path
    left = {path for path in desk.rglob("*") if path.is_file()} - before
    for path in left:
        name = str(path.relative_to(desk))
        if FINDINGS.fullmatch(name) is None:
            assert CANARY.search(text_of(path)) is None, name
    assert any(CANARY.search(text_of(path)) for path in left)  # it would be found


def test_each_line_is_one_object_about_a_run_a_stage_and_a_tenant(desk, run):
    code, _, err = run("--log-format", "json", *AUDIT, start=start_of(Quoting()))
    lines = [json.loads(line) for line in err.splitlines()]
    for line in lines:
        assert line.keys() >= {"at", "level", "run", "tenant", "stage", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])
    marker = json.loads((desk / "run" / "run.json").read_bytes())
    assert marker
    about = [line["run"] for line in lines]
    assert about[-1] is not None
    assert set(about) == {None, about[-1]} or set(about) == {about[-1]}
    assert (lines[-1]["level"], lines[-1]["error"], lines[-1]["exit_code"]) == ("error", "IncompleteError", code)
    assert lines[-1]["message"].startswith("1 of 4 tenants could not be audited")


@pytest.mark.parametrize(
    ("error", "code", "kind"), [(ModelError, 3, "ModelError"), (ZeroDivisionError, DEFECT, "defect")]
)
def test_an_error_that_may_quote_a_text_is_told_by_its_kind(desk, run, error, code, kind):
    write_lines(desk / "events.jsonl", [event("e", tenant=BROKEN, query="case 3 of printer trouble")])
    words = (*AUDIT, "--quiet")
    found, _, err = run("--log-format", "json", *words, start=start_of(Quoting(error=error)))
    assert found == code
    assert CANARY.search(err) is None
    assert {json.loads(line)["error"] for line in err.splitlines()} == {kind}  # of the tenant, and of the run
    assert f'kind="{kind}"' in (desk / "run.prom").read_text()
    found, _, err = run(*words, start=start_of(Quoting(error=error)))
    assert (found, "canary-" in err) == (code, True)


def test_an_input_that_is_refused_is_told_by_its_kind(desk, run):
    write_lines(desk / "events.jsonl", [{**event(), "ts_ms": "POISON"}])
    code, _, err = run("--log-format", "json", *AUDIT)
    (line,) = map(json.loads, err.splitlines())
    assert (code, line["error"], line["exit_code"], "POISON" in err) == (2, "EventError", 2, False)
    assert run("--log-format", "xml", *AUDIT)[0] == 2


def test_each_stage_is_counted_for_prometheus(desk, run):
    assert run(*AUDIT, "--quiet", start=start_of(Quoting()))[0] == IncompleteError.exit_code
    first = samples(desk / "run.prom")
    assert first["memaudit_run_active",] == 0
    assert first["memaudit_run_done_total", "tenant"] == first["memaudit_run_done_total", "group"] == len(TENANTS)
    assert first["memaudit_run_errors_total", "AnswerError"] == 1
    for name in ("embed", "compare", "replay", "load", "hazard"):
        assert first["memaudit_run_done_total", name] > 0
        assert first["memaudit_run_waiting", name] == 0
        assert first["memaudit_run_seconds_total", name] > 0
    generator = Quoting("nobody")
    assert run(*AUDIT, "--quiet", start=start_of(generator))[0] == 0
    again = samples(desk / "run.prom")
    assert again["memaudit_run_retries_total", "backbone"] == generator.requests
    assert again["memaudit_run_known_total", "group"] == len(TENANTS) - 1
    assert again["memaudit_run_done_total", "group"] == 1
    assert again["memaudit_run_known_total", "embed"] > 0
    assert ("memaudit_run_errors_total", "AnswerError") not in again
    assert not any(tenant in (desk / "run.prom").read_text() for tenant in TENANTS)


def test_groups_at_work_elsewhere_are_counted_and_nothing_is_taken_back(tmp_path):
    told, metrics = tmp_path / "run" / "at-work" / "00-0f.json", tmp_path / "run.prom"
    told.parent.mkdir(parents=True)
    work = RunMetrics(Tally(folder=str(tmp_path / "run")), "/store", metrics)
    work.tally.stages = {"replay": Counts(done=5)}
    for done, shown in ((7, 12), (3, 12), (9, 14)):  # a task that was lost begins again
        record = Status(
            stage="s", done=1, total=2, spent_s=1.0, left_s=None, at_ms=1, host="n", pid=1,
            tally=Tally(stages={"replay": Counts(done=done, waiting=2)}),
        )  # fmt: skip
        told.write_bytes(msgspec.json.encode(record))
        work.write()
        assert samples(metrics)["memaudit_run_done_total", "replay"] == shown
        assert samples(metrics)["memaudit_run_waiting", "replay"] == 2
    for damaged in ("{", json.dumps({**json.loads(told.read_bytes()), "tally": {"stages": {"POISON": {}}}})):
        told.write_text(damaged)
        work.write()
    assert samples(metrics)["memaudit_run_done_total", "replay"] == 14
    assert groups_at_work(tmp_path / "run") == {}


def test_figures_are_written_while_another_thread_imports_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))  # as it is until its own first line is done
    metrics = RunMetrics(Tally(), "/store", tmp_path / "run.prom")
    metrics.write()
    assert samples(metrics.file)["memaudit_run_active",] == 1


def test_a_stage_that_fails_waits_for_nothing_and_its_error_is_counted(tmp_path):
    metrics = RunMetrics(Tally(), "/store", tmp_path / "metrics" / "run.prom")

    def fail():
        with stage("a", 9, label="replay") as work:
            work.advance(4)
            assert tally().of("replay").waiting == 5
            raise ModelError

    with pytest.raises(ModelError), metrics, Reporter(None, tally=metrics.tally):
        fail()
    assert samples(metrics.file)["memaudit_run_waiting", "replay"] == 0
    assert samples(metrics.file)["memaudit_run_errors_total", "ModelError"] == 1


def test_metrics_that_cannot_be_written_end_no_work(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with RunMetrics(Tally(), "/store", tmp_path / "file" / "run.prom"):
        pass


def rules():
    """The alert rules that the documentation has to paste."""
    (block,) = re.findall(r"^```yaml\n(groups:.*?)^```", OPERATIONS.read_text(), re.DOTALL | re.MULTILINE)
    return block


def test_the_documentation_names_the_metrics_that_there_are_and_alerts_on_them(desk, run):
    run(*NIGHT, start=start_of(Quoting()))
    shown = {name for path in (desk / "metrics").iterdir() for name, *_ in samples(path)}
    named = set(re.findall(r"`(memaudit_(?:run|night)_\w+)` \|", OPERATIONS.read_text()))
    assert named == shown
    alerts = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
    assert len(alerts) == 3
    for alert in alerts:
        assert set(re.findall(r"memaudit_\w+", alert["expr"])) <= shown
        assert "$labels.store" in alert["annotations"]["summary"]


@pytest.mark.tool("promtool")
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_the_rules_and_the_metrics(desk, run, tmp_path):
    run(*NIGHT, start=start_of(Quoting()))
    (tmp_path / "rules.yaml").write_text(rules())
    subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yaml"], check=True, capture_output=True)
    for path in (desk / "metrics").iterdir():
        found = subprocess.run(
            ["promtool", "check", "metrics"], input=path.read_bytes(), capture_output=True, check=False
        )  # fmt: skip
        assert (found.returncode, found.stderr) == (0, b"")


def test_status_tells_a_run_at_work_its_groups_and_what_failed(desk, run, monkeypatch):
    monkeypatch.setattr(status, "EVERY_S", 0.0)
    seen = []

    class Looking(Quoting):
        async def generate(self, request):
            if self.requests % 10 == 0:
                told = (["status", "run", *words] for words in ([], ["--json"]))
                seen.append([CliRunner().invoke(app, words, catch_exceptions=False).stdout for words in told])
            return await super().generate(request)

    run(*AUDIT, "--quiet", start=start_of(Looking()))
    text, record = [look for look in seen if look[0].startswith("auditing tenants: 3/4")][-1]
    lines, record = text.splitlines(), json.loads(record)
    assert lines[1] == "groups: 3 of 4 groups done, 1 at work; tenants: 3 of 4"
    assert f"  failed: {BROKEN} (AnswerError)" in lines
    assert record["work"]["tally"]["failed"] == {BROKEN: "AnswerError"}
    assert len(record["groups"]) == 1
    assert not any(CANARY.search(text) for look in seen for text in look)
    code, out, _ = run("status", "run", "--watch", "--json")
    assert (code, json.loads(out)) == (0, {"work": None, "groups": {}, "lines": ["sealed"]})
    assert run("status", "a-job", "--address", "http://127.0.0.1:1", "--watch")[0] == 2
