"""A scan survives the round trip, its published schema takes it, and a damaged file is refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from memory_audit.errors import UsageError
from memory_audit.scan.forms.json import from_json, json_schema, to_json
from tests.unit.scan.sample import known, sample_scan

SCHEMA = "scan.schema.json"


def test_round_trip_of_hostile_text_is_exact_and_ascii():
    hostile = "\x1b[2J\u202e<script>\n\x00"
    result = sample_scan(known(key=hostile, message="a line", entry_ids=(hostile,)))
    text = to_json(result)
    assert text.isascii()
    assert "\x1b" not in text
    assert from_json(text.encode()) == result


def test_the_schema_is_the_one_that_is_published():
    packaged = files("memory_audit.scan.forms").joinpath(SCHEMA).read_text()
    assert packaged == json.dumps(json_schema(), indent=1) + "\n", "write it into both files"
    assert (Path(__file__).parents[3] / "docs" / "reference" / SCHEMA).read_text() == packaged


def test_the_schema_takes_what_is_written_and_asks_for_every_field():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    record = json.loads(to_json(sample_scan()))
    jsonschema.validate(record, schema, cls=jsonschema.Draft202012Validator)
    del record["tenants"][0]["findings"][0]["fingerprint"]
    with pytest.raises(jsonschema.ValidationError, match="fingerprint"):
        jsonschema.validate(record, schema, cls=jsonschema.Draft202012Validator)


def changed(change) -> bytes:
    record = json.loads(to_json(sample_scan()))
    change(record)
    return json.dumps(record).encode()


def test_a_field_of_another_version_of_the_program_is_no_obstacle():
    def change(record):
        record["tenants"][0]["colour"] = "red"
        del record["kinds"]

    assert from_json(changed(change)).tenants == sample_scan().tenants


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda record: record.update(format="memaudit-result"), 'is not "memaudit-scan"'),
        (lambda record: record.update(version=2), "version is 2"),
        (lambda record: record.update(tenants=3), "tenants is 3"),
        (lambda record: record["tenants"].append(record["tenants"][0]), "a tenant twice"),
        (lambda record: record["tenants"][0]["findings"][0].update(state="gone"), "state is 'gone'"),
        (lambda record: record["tenants"][0]["findings"][0].update(fingerprint="0"), "is not the fingerprint"),
        (lambda record: record["tenants"][0]["findings"][0]["finding"].update(key="x"), "is not the fingerprint"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(change, told):
    with pytest.raises(UsageError, match=r"^scan\.json: ") as error:
        from_json(changed(change))
    assert told in str(error.value)
