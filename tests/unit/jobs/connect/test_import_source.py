"""Imports from a system stay in step with it: what is new, what was edited, what is gone, and when that is an alarm."""

# ruff: noqa: ANN002 - what is handed on

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory_audit.integrations.entries import base_of, entry_of, version_id, version_of
from memory_audit.jobs.cli.incoming import import_
from memory_audit.jobs.cli.shared import FINDINGS
from memory_audit.jobs.connect import address
from memory_audit.jobs.connect.connector import Record, Removed


@pytest.fixture
def desk(folder, set_up, monkeypatch):
    """A working folder with keys and a fake system, `fake:memories`."""
    for module in (address, import_):
        monkeypatch.setattr(module, "SYSTEMS", {"fake": "tests.unit.jobs.connect.fake_system:FakeSystem"})
    set_up(("keys", "new"))
    return folder


def write(desk, *rows):
    lines = ({"id": name, "text": text, "owner": owner} for name, text, owner in rows)
    (desk / "memories").write_text("\n".join(map(json.dumps, lines)))


FOUR = [("a", "one", "bob"), ("b", "two", "bob"), ("c", "three", "bob"), ("d", "four", "eve")]


@pytest.fixture
def bring(run):
    def command(*words):
        code, out, err = run("import", "fake:memories", "store", *words, "--json")
        return code, json.loads(out) if out else err

    return command


def live(run):
    _, out, _ = run("export", "store")
    return {entry["entry_id"]: entry for entry in map(json.loads, out.splitlines())}


def test_an_edited_memory_is_a_new_entry_whose_parent_is_the_old_one(desk, run, bring):
    write(desk, *FOUR)
    assert bring()[1]["imported"] == 4
    for version, text in ((2, "one, edited"), (3, "one, again")):
        write(desk, ("a", text, "bob"), *FOUR[1:])
        code, told = bring()
        assert (code, told["imported"], told["known"]) == (0, 0, 3)
        assert told["edited"] == [{"tenant": "user=bob", "entry_id": f"a@{version}"}]
    entries = live(run)
    assert entries["a@3"]["parents"] == [["a@2", 1.0]]
    assert (entries["a@3"]["response"], entries["a"]["response"]) == ("one, again", "one")
    code, told = bring()
    assert (code, told["known"], told["gone"], told["alarms"]) == (0, 4, [], [])


def test_what_is_gone_is_told_and_stays(desk, run, bring):
    write(desk, *FOUR)
    bring()
    write(desk, *FOUR[1:])
    code, told = bring()
    assert (code, told["gone"], told["alarms"]) == (0, [{"tenant": "user=bob", "entry_id": "a"}], [])
    assert set(live(run)) == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("left", "alarm"),
    [
        (FOUR[2:], {"tenant": "user=bob", "missing": 2, "of": 3}),
        (FOUR[:3], {"tenant": "user=eve", "missing": 1, "of": 1}),
    ],
)
def test_a_shrunken_or_empty_tenant_is_an_alarm_each_time_and_no_deletion(desk, run, bring, left, alarm):
    write(desk, *FOUR)
    bring()
    write(desk, *left, ("new", "new", "mallory"))
    assert bring()[:1] == (FINDINGS,)
    code, told = bring()
    assert (code, told["alarms"], told["known"]) == (FINDINGS, [alarm], len(left) + 1)
    assert set(live(run)) == {"a", "b", "c", "d", "new"}
    write(desk, *FOUR, ("new", "new", "mallory"))
    assert bring()[0] == 0


def test_nothing_at_all_is_an_alarm_for_each_tenant_and_for_a_new_store_an_error(desk, run, bring):
    write(desk)
    code, err = bring()
    assert (code, "no memories in it; nothing was written" in err) == (2, True)
    assert not (desk / "store").exists()
    write(desk, *FOUR)
    bring()
    write(desk)
    code, told = bring()
    assert (code, [alarm["missing"] for alarm in told["alarms"]]) == (FINDINGS, [3, 1])
    _, out, _ = run("import", "fake:memories", "store")
    assert "ALARM user=bob: the dump lacks 3 of 3 memories" in out


def test_another_schema_is_an_alarm_once(desk, bring):
    write(desk, *FOUR)
    bring()
    code, told = bring("--option", "schema=fake 2")
    alarm = {"source": "fake:memories", "schema": "fake 2", "before": "fake 1"}
    assert (code, told["alarms"]) == (FINDINGS, [alarm])
    assert bring("--option", "schema=fake 2")[0] == 0


def test_what_was_removed_does_not_come_back_edited_or_not(desk, run, bring):
    write(desk, *FOUR)
    bring()
    words = ("--tenant", "user=bob", "--reason", "x", "--backbone", "none", "--embedder", "none", "--apply")
    assert run("forget", "store", "a", *words)[0] == 0
    for text in ("one", "one, edited"):
        write(desk, ("a", text, "bob"), *FOUR[1:])
        code, told = bring()
        assert (code, told["removed"], told["edited"]) == (0, [{"tenant": "user=bob", "entry_id": "a"}], [])
    assert set(live(run)) == {"b", "c", "d"}


def test_a_memory_that_no_store_can_hold_stops_no_import_and_is_told(desk, bring):
    write(desk, *FOUR, ("big", "x" * 70_000, "eve"))
    code, told = bring()
    assert (code, told["imported"], told["alarms"]) == (FINDINGS, 4, [{"source": "fake:memories", "unfit": 1}])
    assert "entry 'big': response has 70000 characters" in told["unfit"][0]


def test_a_memory_without_owner_asks_for_one(desk, run, bring):
    write(desk, ("a", "one", ""))
    code, err = bring()
    assert (code, "--tenant says whose" in err) == (2, True)
    assert bring("--tenant", "acme")[0] == 0
    assert live(run)["a"]["tenant"] == "acme"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fake:gone",), "nothing there"), (("fake:",), "no SYSTEM:PLACE"), (("other:x",), "systems are fake, jsonl"),
        (("memories.jsonl",), "no SYSTEM:PLACE"), (("fake:memories", "--option", "x"), "no KEY=VALUE"),
        (("fake:memories", "--option", "x=1"), "unknown field 'x'"),
        (("fake:memories", "--new-only"), "option of jsonl"), (("jsonl:x", "--option", "a=b"), "jsonl has none"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_one_line(desk, run, words, said):
    write(desk, *FOUR)
    code, _, err = run("import", words[0], "store", *words[1:])
    assert (code, said in err, err.count("\n")) == (2, True, 1)


def test_sources_are_listed_with_what_is_there(desk, run):
    write(desk, *FOUR)
    (desk / "night.yaml").write_text(
        "store: store\nkeys: memaudit-keys\nruns: {folder: nights}\nevents: [events.jsonl]\npolicy: {}\n"
        'sources: [{system: "fake:memories"}, {system: "fake:gone"}]\n'
    )
    code, out, _ = run("sources", "night.yaml", "--json")
    told = json.loads(out)
    assert code == FINDINGS
    assert [(one["source"], one["readable"]) for one in told["sources"]] == [
        ("fake:memories", True), ("fake:gone", False),
    ]  # fmt: skip
    assert told["systems"][0]["written_for"] == "fake 1"


IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300) | st.from_regex(
    r"[a-z@]{0,3}@[0-9]{1,3}", fullmatch=True
)


@given(name=IDS, version=st.integers(1, 10**6))
def test_an_entry_id_says_record_and_version(name, version):
    base = base_of(name)
    assert version_of(version_id(base, version)) == (base, version)
    entry = entry_of(
        Record(record_id=name, text="x", owner=()), tenant="t", principal="p", now_ms=5, where="there"
    )  # fmt: skip
    assert (version_of(entry.entry_id), entry.created_at_ms, entry.matched) == ((base, 1), 5, "x")


@given(names=st.lists(IDS, unique=True, max_size=5))
@example(names=["\u00e9", "e\u0301"])
@example(names=["x" * 300, base_of("x" * 300)])
def test_no_two_records_are_taken_for_one(names):
    assert len(set(map(base_of, names))) == len(names)


@given(one=st.tuples(IDS, st.integers(1, 20)), other=st.tuples(IDS, st.integers(1, 20)))
def test_no_two_versions_share_an_id(one, other):
    (a, n), (b, m) = ((base_of(name), version) for name, version in (one, other))
    assert (version_id(a, n) == version_id(b, m)) == ((a, n) == (b, m))


def test_a_short_text_is_looked_for_as_a_whole_and_a_long_one_in_quotes():
    removed = Removed(records=(Record(record_id="1", text="tea", owner=(), spellings=("a longer sentence",)),))
    assert removed.is_in("tea")
    assert not removed.is_in("a team")
    assert removed.is_in("he said: a longer sentence.")
    assert not removed.is_in(None)


def test_a_night_imports_from_a_system_and_its_alarm_is_the_nights(desk, run):
    write(desk, *FOUR)
    (desk / "events.jsonl").write_bytes(b"")
    (desk / "night.yaml").write_text(
        "store: store\nkeys: memaudit-keys\nruns: {folder: nights}\nevents: [events.jsonl]\nlocal: true\n"
        'sources: [{system: "fake:memories"}]\n'
    )
    code, out, err = run("nightly", "night.yaml", "--json")
    assert (code, json.loads(out)["import"]["new"]) == (0, 4), err
    write(desk, ("a", "one, edited", "bob"), *FOUR[1:3])
    code, out, _ = run("nightly", "night.yaml", "--json")
    told = json.loads(out)
    assert (code, told["import"], told["alarms"]) == (
        FINDINGS, {"new": 1, "known": 2, "removed": 0}, [{"tenant": "user=eve", "missing": 1, "of": 1}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{}", "either a file or a system"), ('{file: a, system: "fake:x"}', "either a file or a system"),
        ("{file: a, options: {b: c}}", "has no options"), ('{system: "fake:x", whole: false}', "is whole"),
        ('{system: "jsonl:x"}', "{file: x}"), ('{system: "gone:x"}', "no SYSTEM:PLACE"),
    ],
)  # fmt: skip
def test_a_source_that_a_night_cannot_have_is_one_line(desk, run, source, said):
    (desk / "night.yaml").write_text(
        f"store: store\nkeys: memaudit-keys\nruns: {{folder: nights}}\nevents: [e]\nsources: [{source}]\n"
    )
    code, _, err = run("sources", "night.yaml")
    assert (code, said in err, err.count("\n")) == (2, True, 1)
