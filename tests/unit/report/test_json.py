"""A result survives the round trip, and a file that breaks a rule is refused with its place."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest

from memory_audit.errors import UsageError
from memory_audit.report.json import from_json, to_json
from memory_audit.result import AuditResult
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_lineage import with_lineage


def test_round_trip_gives_an_equal_result():
    result = sample_result()
    assert from_json(to_json(result)) == result
    assert from_json(to_json(result).encode()) == result


def test_round_trip_of_hostile_text_is_exact_and_ascii():
    result = hostile_result([*markup("x:"), BIDI, ANSI, ZERO_WIDTH, LONG, "\ud800", "\x00"])
    text = to_json(result)
    assert text.isascii()
    assert "\x1b" not in text
    assert from_json(text) == result


def test_every_field_is_written():
    record = json.loads(to_json(sample_result()))
    assert set(record) == {"format", "version"} | {field.name for field in fields(AuditResult)}


def test_scores_say_what_goes():
    result = with_lineage("quarantine")[0]
    for tenant, record in zip(result.tenants, json.loads(to_json(result))["tenants"], strict=True):
        said = {score["entry_id"]: score["removed"] for score in record["scores"]}
        assert said == {score.entry_id: score.entry_id in tenant.removal.removed for score in tenant.scores}
    assert not any(said[name] for name in result.tenants[-1].removal.quarantined)


@pytest.mark.parametrize("said", [lambda removed: not removed, int, str, lambda _: None, lambda _: KeyError])
@pytest.mark.parametrize("number", [0, -1])  # goes; stays
def test_a_score_that_says_otherwise_than_the_removal_is_refused(number, said):
    scores = json.loads(to_json(sample_result()))["tenants"][0]["scores"]
    with pytest.raises(UsageError, match=r"scores\[\d+\]\.removed is .*, but (True|False) by the removal$"):
        from_json(change(["tenants", 0, "scores", number % len(scores), "removed"], said(scores[number]["removed"])))


def test_a_score_that_is_not_finite_cannot_be_written():
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        to_json(replace(sample_result(), seconds=math.nan))


def change(path, value):
    record = json.loads(to_json(sample_result()))
    target = record
    for step in path[:-1]:
        target = target[step]
    if value is KeyError:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "other", '"format" is not "memaudit-result"'),
        (["version"], 2, "version is 2, this program reads version 1"),
        (["version"], True, "version is True"),
        (["tenants", 0, "events", 1, "surprise"], 1, r"events\[1\] has the unknown field 'surprise'"),
        (["tenants", 0, "scores", 3, "density"], KeyError, r"scores\[3\] lacks the field 'density'"),
        (["surprise"], 1, "result has the unknown field 'surprise'"),
        (["store"], KeyError, "store is missing"),
        (["store"], 3, "store is 3, expected text"),
        (["snapshot_version"], 1.5, "snapshot_version is 1.5, expected a whole number"),
        (["snapshot_version"], True, "snapshot_version is True, expected a whole number"),
        (["seconds"], "1", "seconds is '1', expected a number"),
        (["tenants"], {}, "tenants is {}, expected a list"),
        (["tenants", 1, "scores", 2, "ds"], None, r"tenants\[1\].scores\[2\].ds is None, expected a number"),
        (
            ["tenants", 0, "events", 0, "verdict"],
            "fine",
            r"tenants\[0\].events\[0\].verdict is 'fine', expected one of cleared",
        ),
        (["tenants", 0, "events", 0, "causes", 0], 7, r"causes\[0\] is 7, expected text"),
        (["counters", "replays"], "many", "counters is not a mapping of names to a whole number"),
        (["entries_text"], [], "entries_text is .., expected a mapping"),
    ],
)
def test_a_broken_rule_is_named(path, value, message):
    with pytest.raises(UsageError, match=message):
        from_json(change(path, value), "run/result.json")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        "[" * 100_000,
        '{"format": "memaudit-result", "version": 1, "version": 1}',
        '{"format": "memaudit-result", "version": 1, "seconds": NaN}',
    ],
)
def test_a_file_that_is_no_result_is_refused(text):
    with pytest.raises(UsageError, match=r"^run/result\.json: "):
        from_json(text, "run/result.json")


def test_infinity_in_disguise_is_refused():
    text = to_json(sample_result()).replace('"seconds": 312.4', '"seconds": 1e999')
    with pytest.raises(UsageError, match="1e999 is beyond 1e"):
        from_json(text)


def test_unknown_scores_stay_unknown():
    read = from_json(to_json(sample_result()))
    assert any(score.cmis is None for tenant in read.tenants for score in tenant.scores)


def test_a_number_of_thousands_of_digits_is_refused():
    text = to_json(sample_result()).replace('"version": 1', '"version": ' + "9" * 5_000, 1)
    with pytest.raises(UsageError, match="not a result file"):
        from_json(text)


def change_lineage(path, value):
    record = json.loads(to_json(with_lineage("quarantine")[0]))
    target = record["tenants"][0]["lineage"]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["descendants", 1, "path"], r"tenants\[0\].lineage.descendants\[1\].path is empty, expected a path to 'tick-"),
        (["entries"], r"tenants\[0\].lineage.entries lacks 'tick-\d+', which is to be removed"),
    ],
)
def test_a_lineage_that_no_report_could_show_is_refused(path, message):
    with pytest.raises(UsageError, match=message):
        from_json(change_lineage(path, []))


def test_a_removal_of_what_no_report_shows_is_refused():
    with pytest.raises(UsageError, match=r"tenants\[0\].removal names 'ghost' more than once, or it has no score"):
        from_json(change(["tenants", 0, "removal", "attributed", "ghost"], "why"))


def test_a_removal_that_names_an_entry_twice_is_refused():
    name = next(iter(sample_result().tenants[0].removal.attributed))
    with pytest.raises(UsageError, match=rf"removal names '{name}' more than once"):
        from_json(change(["tenants", 0, "removal", "derived", name], "why"))


@pytest.mark.parametrize(("part", "proposal"), [("derived", "remove"), ("quarantined", "quarantine")])
def test_a_removal_with_other_descendants_than_the_lineage_is_refused(part, proposal):
    record = json.loads(to_json(with_lineage("quarantine")[0]))
    record["tenants"][0]["removal"][part] = {}
    with pytest.raises(UsageError, match=rf"removal has other descendants to {proposal} than the lineage"):
        from_json(json.dumps(record))


@pytest.mark.parametrize("field", ["cmis", "cas", "ds", "density", "rank"])
def test_a_number_that_no_drawing_could_hold_is_refused(field):
    huge = 10**300 if field == "rank" else -1e308
    with pytest.raises(UsageError, match=r"not a result file \(-?1.* is beyond 1e"):
        from_json(change(["tenants", 0, "scores", 2, field], huge))


def test_what_is_too_large_to_be_read_is_not_written(monkeypatch):
    result = sample_result()
    size = len(to_json(result))
    monkeypatch.setattr("memory_audit.report.json.MAX_BYTES", size)
    assert from_json(to_json(result)) == result
    monkeypatch.setattr("memory_audit.report.json.MAX_BYTES", size - 1)
    with pytest.raises(UsageError, match=rf"takes {size:,} bytes, at most {size - 1:,} are allowed in one: audit"):
        to_json(result)
