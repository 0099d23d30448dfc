"""The suites of the PyPI package agent-memory-integrity: all nine edits refused on read; what its writes get served."""

import json

import numpy as np
import pytest

from benchmarks.gate.lineage.agmi_semantic import READERS, measure

check = pytest.importorskip("agmi.check", reason="needs the PyPI package agent-memory-integrity")


@pytest.mark.parametrize("adapter", ["MemAuditStoreAdapter", "StolenLogKeyAdapter"])
def test_all_nine_edits_are_rejected_on_read(tmp_path, capsys, adapter):
    report = tmp_path / "agmi.json"
    code = check.main(["--adapter", f"tests.conformance.agmi_adapter:{adapter}", "--json", str(report)])
    verdicts = {row["attack"]: row["verdict"] for row in json.loads(report.read_text())["edits"]}
    assert code == 0, capsys.readouterr().out
    assert len(verdicts) == 9
    assert set(verdicts.values()) == {"REJECTED"}


class WordEmbedder:
    model_id = "words"

    def embed(self, texts):
        vectors = np.zeros((len(texts), 97), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, sum(word.encode()) % 97] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_planted_memory_is_served_as_trusted_only_with_the_users_key():
    rows = measure(WordEmbedder(), list(READERS), mutations=False, attacks=["memory_injection"])
    surfaced = {(row["reader"], row["channel"]): row["surfaced"] for row in rows}
    channels = ("external", "laundered", "agent-laundered")
    assert [surfaced["every memory", channel] for channel in channels] == [5, 5, 5]
    assert [surfaced["trusted label", channel] for channel in channels] == [0, 5, 5]
    assert [surfaced["trusted, own keys", channel] for channel in channels] == [0, 0, 5]


def test_no_tenant_is_served_anothers_memories():
    rows = measure(WordEmbedder(), ["every memory"], mutations=False, attacks=["cross_session_bleed"])
    assert [row["outcomes"] for row in rows] == [["kept out"] * 5]
