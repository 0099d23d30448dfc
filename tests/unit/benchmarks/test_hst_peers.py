"""A peer runs in a process of its own on the folder given, and its absence is a row and not an error."""

import pytest

from benchmarks.guard.hst.corpus import Corpus, Write
from benchmarks.guard.hst.peer_rows import CONTROLS, peer_rows
from benchmarks.guard.hst.peers import MODES, PeerMissingError, ask_peer

STAND_IN = """
import sys
class Memory:
    def __init__(self, status): self.status = status
class MemoryStore:
    def __init__(self, path, clock): self.texts, self.gone, self.clock = {}, set(), clock
    def write(self, key, text):
        if "benchmarks" in sys.modules: raise SystemExit("sees the project")
        self.texts[key] = text
        refused = key in self.gone or "Ignore all" in text
        return Memory("pending" if refused else "alive")
    def delete(self, key, reason): self.gone.add(key)
    def close(self): pass
"""
POISON = (Write(write_id="p0", request="q", response="a bad act", poison=0),)
BENIGN = (Write(write_id="b0", request="q", response="a good act"),)
CORPUS = Corpus(
    poison=POISON, benign=BENIGN, queries=("q",), paraphrases=(), safe_twins=BENIGN, translated_twins=(), adaptive=()
)  # fmt: skip


@pytest.fixture
def packages(tmp_path):
    (tmp_path / "memgovern.py").write_text(STAND_IN, encoding="utf-8")
    info = tmp_path / "memgovern-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memgovern\nVersion: 9.9\n", encoding="utf-8")
    return tmp_path


def test_a_peer_is_told_what_was_removed_and_asked_about_every_write(packages):
    attempts = {"again": [Write(write_id="again-p0", request="q", response="a bad act")], "fine": BENIGN}
    answer = ask_peer("memgovern", "same-key", [*BENIGN, *POISON], POISON, attempts, packages)
    assert answer["version"] == "9.9"
    assert answer["blocked"] == {"again": ["again-p0"], "fine": []}
    assert ask_peer("memgovern", "new-key", [*POISON], POISON, attempts, packages)["blocked"]["again"] == []


def test_a_peer_that_is_not_there_is_named_with_the_reason(packages):
    with pytest.raises(PeerMissingError, match="bastionmemory"):
        ask_peer("bastionmemory", "block", BENIGN, (), {"fine": BENIGN}, packages)
    with pytest.raises(PeerMissingError, match="--packages"):
        ask_peer("memgovern", "new-key", BENIGN, (), {"fine": BENIGN}, None)


def test_every_peer_and_mode_has_rows_or_one_that_says_why_not(packages):
    rows = list(peer_rows(CORPUS, packages, seed=0))
    skipped = {(row["peer"], row["mode"]) for row in rows if "skipped" in row}
    measured = {(row["peer"], row["mode"]) for row in rows if "rate" in row}
    assert measured == {("memgovern", "new-key"), ("memgovern", "same-key")}
    assert measured | skipped == set(MODES)
    control = next(row for row in rows if row.get("set") == "control")
    assert (control["blocked"], control["n"]) == (1, len(CONTROLS))
