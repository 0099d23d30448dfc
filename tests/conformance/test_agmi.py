"""The at-rest attack suite of the PyPI package agent-memory-integrity: all nine edits refused on read."""

import json

import pytest

check = pytest.importorskip("agmi.check", reason="needs the PyPI package agent-memory-integrity")


@pytest.mark.parametrize("adapter", ["MemAuditStoreAdapter", "StolenLogKeyAdapter"])
def test_all_nine_edits_are_rejected_on_read(tmp_path, capsys, adapter):
    report = tmp_path / "agmi.json"
    code = check.main(["--adapter", f"tests.conformance.agmi_adapter:{adapter}", "--json", str(report)])
    verdicts = {row["attack"]: row["verdict"] for row in json.loads(report.read_text())["edits"]}
    assert code == 0, capsys.readouterr().out
    assert len(verdicts) == 9
    assert set(verdicts.values()) == {"REJECTED"}
