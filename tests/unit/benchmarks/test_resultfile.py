"""A result file keeps what was measured, resumes an equal configuration and forgets another one's rows."""

import json

from benchmarks.harness import resultfile
from benchmarks.harness.resultfile import ResultFile, describe_machine


def test_every_row_is_on_disk_as_soon_as_it_is_added(tmp_path):
    result = ResultFile("speed", "python -m benchmarks.speed", {"n": 3}, folder=tmp_path)
    result.add_row({"n": 1})
    on_disk = json.loads((tmp_path / "speed.json").read_text())
    assert on_disk["rows"] == [{"n": 1}]
    assert set(on_disk) == {"name", "command", "commit", "machine", "started", "seconds", "config", "rows", "bars"}


def test_an_equal_configuration_resumes_and_another_starts_empty(tmp_path):
    ResultFile("speed", "c", {"n": 3, "sizes": (1, 2)}, folder=tmp_path).add_row({"n": 1})
    resumed = ResultFile("speed", "c", {"n": 3, "sizes": (1, 2)}, folder=tmp_path)
    assert resumed.rows == [{"n": 1}]
    assert ResultFile("speed", "c", {"n": 4}, folder=tmp_path).rows == []
    assert ResultFile("speed", "c", {"n": 3, "sizes": (1, 2)}, folder=tmp_path, fresh=True).rows == []


def test_rows_added_on_another_machine_name_it(tmp_path, monkeypatch):
    ResultFile("speed", "c", {}, folder=tmp_path).add_row({"n": 1})
    first = describe_machine()
    monkeypatch.setattr(resultfile, "describe_machine", lambda: first | {"cpu": "another"})
    ResultFile("speed", "c", {}, folder=tmp_path).add_row({"n": 2})
    on_disk = json.loads((tmp_path / "speed.json").read_text())
    assert on_disk["machine"] == first
    assert on_disk["rows"] == [{"n": 1}, {"n": 2, "machine": "another"}]


def test_a_bar_replaces_the_one_of_its_name(tmp_path):
    result = ResultFile("speed", "c", {}, folder=tmp_path)
    result.add_bar("ratio", 2.0, "x", "<= 1.3", met=False)
    result.add_bar("ratio", 1.1, "x", "<= 1.3", met=True)
    bars = json.loads((tmp_path / "speed.json").read_text())["bars"]
    assert bars == [{"name": "ratio", "value": 1.1, "unit": "x", "limit": "<= 1.3", "met": True, "of": "default"}]


def test_the_machine_is_described_without_host_name_or_path():
    machine = describe_machine()
    assert machine["cores"] >= 1
    assert set(machine) == {"cpu", "cores", "memory_gib", "gpu", "system", "python"}
