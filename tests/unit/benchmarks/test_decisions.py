"""Every decision that differs between two revisions of the results is told, and nothing else is."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from benchmarks.harness.decisions import differences, recorded_at, recorded_now
from memory_audit.errors import UsageError

BAR = {"name": "ratio", "value": 1.1, "unit": "x", "limit": "<= 1.3", "met": True}
RESULT: dict[str, Any] = {
    "name": "speed", "command": "c", "commit": "1", "machine": {"cpu": "one"}, "started": "then", "seconds": 1.0,
    "config": {"n": 3}, "rows": [{"n": 1, "removed": ["a"]}, {"n": 2, "removed": []}], "bars": [BAR],
}  # fmt: skip


def told(**changed: object) -> list[str]:
    return list(differences({"speed.json": RESULT}, {"speed.json": RESULT | changed}))


def test_when_where_and_for_whom_a_result_was_made_is_no_difference():
    elsewhere = {"commit": "2", "machine": {"cpu": "two"}, "started": "now", "seconds": 2.0, "command": "d"}
    assert told(**elsewhere, bars=[BAR | {"of": "default"}]) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"config": {"n": 4}}, "config: .n 3 -> 4"),
        ({"rows": [{"n": 1, "removed": ["a"]}, {"n": 2, "removed": ["b"]}]}, "rows: [1].removed [] -> ['b']"),
        ({"rows": RESULT["rows"][1:]}, 'rows: - {"n": 1, "removed": ["a"]}'),
        ({"rows": [*RESULT["rows"], {"n": 3}]}, 'rows: + {"n": 3}'),
        ({"bars": [BAR | {"value": 1.2}]}, "bars: [0].value 1.1 -> 1.2"),
        ({"rows": [{"n": True, "removed": ["a"]}, {"n": 2, "removed": []}]}, "rows: [0].n 1 -> True"),
    ],
)
def test_a_difference_is_told_with_its_place(changed, line):
    assert told(**changed) == [f"speed.json: {line}"]


def test_results_that_came_or_went_are_told():
    assert list(differences({"a.json": RESULT}, {"b.json": RESULT})) == ["a.json: gone", "b.json: new"]


def test_a_revision_is_compared_with_the_working_tree(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "speed.json").write_text(json.dumps(RESULT))
    (folder / "speed.svg").write_text("<svg/>")
    git("init", "--quiet", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", "results", cwd=tmp_path)
    assert recorded_at("HEAD", folder) == recorded_now(folder) == {"speed.json": RESULT}
    (folder / "speed.json").write_text(json.dumps(RESULT | {"rows": []}))
    assert len(list(differences(recorded_at("HEAD", folder), recorded_now(folder)))) == 2
    with pytest.raises(UsageError, match="git ls-tree"):
        recorded_at("nowhere", folder)


def git(*words: str, cwd):
    subprocess.run(("git", *words), cwd=cwd, check=True, capture_output=True)
