"""A result survives the round trip, its schema takes it, and a file that breaks a rule is refused with its place."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from memory_audit.errors import UsageError
from memory_audit.report.json import from_json, json_schema, to_json
from memory_audit.result import AuditResult
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_lineage import with_lineage
from tests.whole import summed

SCHEMA = "result.schema.json"


def sample():
    """The sample as a run has it, its tenants by name."""
    result = sample_result()
    return summed(replace(result, tenants=tuple(sorted(result.tenants, key=lambda tenant: tenant.tenant))))[0]


def test_round_trip_gives_an_equal_result():
    result = sample()
    assert from_json(to_json(result).encode()) == result
    assert from_json(to_json(result, indent=1).encode()) == result


def test_round_trip_of_hostile_text_is_exact_and_ascii():
    hostile = hostile_result([*markup("x:"), BIDI, ANSI, ZERO_WIDTH, LONG, "\x00"])
    result = summed(replace(hostile, tenants=tuple(sorted(hostile.tenants, key=lambda tenant: tenant.tenant))))[0]
    text = to_json(result)
    assert text.isascii()
    assert "\x1b" not in text
    assert from_json(text.encode()) == result


def test_every_field_is_written():
    record = json.loads(to_json(sample()))
    assert set(record) == {"format", "version"} | {field.name for field in fields(AuditResult)}


def test_the_schema_is_the_one_that_is_published():
    packaged = files("memory_audit.report").joinpath(SCHEMA).read_text()
    assert json.loads(packaged) == json_schema(), "write json.dumps(json_schema(), indent=1) into both files"
    assert (Path(__file__).parents[3] / "docs" / "reference" / SCHEMA).read_text() == packaged


@pytest.mark.parametrize("result", [sample(), summed(with_lineage("quarantine")[0])[0], replace(sample(), tenants=())])
def test_the_schema_takes_what_is_written(result):
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(json.loads(to_json(result)), json_schema(), cls=jsonschema.Draft202012Validator)


def test_a_number_that_is_not_finite_cannot_be_written():
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        to_json(replace(sample(), seconds=math.nan))


def change(path, value):
    record = json.loads(to_json(sample()))
    target = record
    for step in path[:-1]:
        target = target[step]
    if value is KeyError:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return json.dumps(record).encode()


BROKEN = [
    (["format"], "other", '"format" is not "memaudit-result"'),
    (["version"], 1, "version is 1, this program reads version 2: start the same audit again"),
    (["version"], True, "version is True"),
    (["tenants", 0, "surprise"], 1, r"tenants\[0\] has the unknown field 'surprise'"),
    (["tenants", 1, "tally", "surprise"], 1, r"tenants\[1\].tally has the unknown field 'surprise'"),
    (["tenants", 0, "failure"], KeyError, r"tenants\[0\] lacks the field 'failure'"),
    (["files"], KeyError, "result lacks the field 'files'"),
    (["surprise"], 1, "result has the unknown field 'surprise'"),
    (["store"], KeyError, "store is missing"),
    (["store"], 3, "store is 3, expected text"),
    (["snapshot_version"], 1.5, "snapshot_version is 1.5, expected a whole number"),
    (["seconds"], "1", "seconds is '1', expected a number"),
    (["tenants"], {}, "tenants is {}, expected a list"),
    (["tenants", 1, "tally", "judged"], None, r"tenants\[1\].tally.judged is None, expected a whole number"),
    (["tenants", 0, "tally", "verdicts"], {"fine": 1}, "run/result.json: expected"),
    (["counters", "replays"], "many", "counters is not a mapping of names to a whole number"),
    (["tenants", 0, "tenant"], "zed", "has a tenant twice, or out of order"),
    (["tenants", 0, "tenant"], "northwind-support", "has a tenant twice, or out of order"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), BROKEN)
def test_a_broken_rule_is_named(path, value, message):
    with pytest.raises(UsageError, match=message):
        from_json(change(path, value), "run/result.json")


@pytest.mark.parametrize(("path", "value", "message"), BROKEN[3:-2])
def test_the_schema_refuses_what_the_reader_refuses(path, value, message):
    if path[-1] == "verdicts":
        pytest.skip("a schema of msgspec's does not name the keys of a mapping")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(change(path, value)), json_schema())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": "memaudit-result", "version": 2, "version": 2}',
        b'{"format": "memaudit-result", "version": 2, "seconds": NaN}',
        b'{"format": "memaudit-result", "version": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_file_that_is_no_result_is_refused(text):
    with pytest.raises(UsageError, match=r"^run/result\.json: "):
        from_json(text, "run/result.json")


def test_infinity_in_disguise_is_refused():
    text = to_json(sample()).replace('"seconds":312.4', '"seconds":1e999')
    with pytest.raises(UsageError, match="1e999 is no number that a float holds"):
        from_json(text.encode())


def test_a_removal_that_names_an_entry_twice_is_refused():
    name = next(iter(sample().tenants[0].removal.attributed))
    with pytest.raises(UsageError, match=rf"tenants\[0\].removal names '{name}' more than once"):
        from_json(change(["tenants", 0, "removal", "suspected", name], "why"))


def test_what_is_too_large_to_be_read_is_not_written(monkeypatch):
    result = sample()
    size = len(to_json(result))
    monkeypatch.setattr("memory_audit.report.json.MAX_BYTES", size)
    assert from_json(to_json(result).encode()) == result
    monkeypatch.setattr("memory_audit.report.json.MAX_BYTES", size - 1)
    with pytest.raises(UsageError, match=rf"takes {size:,} bytes, at most {size - 1:,} are allowed in one: audit"):
        to_json(result)


def test_a_run_of_few_tenants_has_their_findings_in_the_file_too_and_is_read_as_one_without():
    whole = sample_result()
    found = sorted(whole.tenants, key=lambda tenant: tenant.tenant)
    text = to_json(sample(), found=found)
    assert from_json(text.encode()) == sample()
    jsonschema.validate(json.loads(text), json_schema(), cls=jsonschema.Draft202012Validator)
    for tenant, there in zip(json.loads(text)["tenants"], found, strict=True):
        assert [event["verdict"] for event in tenant["events"]] == [event.verdict for event in there.events]
        assert {score["entry_id"] for score in tenant["scores"] if score["removed"]} == set(there.removal.ids)
