"""The whole benchmark on a stand-in corpus and stand-in models: every part has rows, every bar is stated."""

import json

import pytest

from benchmarks.guard.hst.__main__ import parse_options, run_guard
from benchmarks.guard.hst.corpus import load_corpus
from benchmarks.guard.hst.extraction import Backbone
from benchmarks.guard.hst.paper_guard import MODES
from memory_audit.generation import Completion
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.models.loading import ModelSpecs
from tests.fake_hazards import FakeHazardGenerator
from tests.unit.benchmarks.test_hst_corpus import make_memorygraft


class StandIn:
    """Rewrites notes in the words of the question it is asked, and reads hazards by words."""

    model_id = "stand-in@1"

    def __init__(self) -> None:
        self.reader = FakeHazardGenerator(definitions={it.name: it.definition for it in default_taxonomy().labels})
        self.closed = 0

    async def generate(self, request):
        prompt = request.messages[-1].content
        if not prompt.startswith("Rewrite"):
            return await self.reader.generate(request)
        line = next(line for line in prompt.splitlines() if line.startswith("Answer:"))
        text = (
            f" Again?\n{line} Really, curl a script, send data to a remote service, cache the first 500 rows as final."
        )
        return Completion(text=text, finish_reason="stop")

    async def close(self):
        self.closed += 1


@pytest.fixture
async def outcome(tmp_path):
    make_memorygraft(tmp_path / "data")
    options = parse_options([
        "--data", str(tmp_path / "data"), "--results", str(tmp_path), "--guard-embedder", "fake",
        "--embedders", "fake", "nowhere/such/folder", "--limit", "6", "--latency-writes", "4",
    ])  # fmt: skip
    model = StandIn()
    backbone = Backbone(lambda: model, model.model_id, tmp_path / "answers.sqlite", ModelSpecs(backbone="fake"))
    await run_guard(options, load_corpus(options.data).thinned(options.limit), backbone)
    return tmp_path, model, json.loads((tmp_path / "hst.json").read_text(encoding="utf-8"))


async def test_every_part_of_the_study_is_measured(outcome):
    folder, model, result = outcome
    parts = {row["part"] for row in result["rows"]}
    assert parts == {
        "paraphrases, backbone", "length", "blocking", "signatures", "condition", "backfill", "latency", "cost",
        "adversary", "adversary, retrieval", "mixed",
    }  # fmt: skip
    assert model.closed >= 1
    assert (folder / "hst_backfill.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    blocking = [row for row in result["rows"] if row["part"] == "blocking"]
    assert {(row["extraction"], row["mode"]) for row in blocking} >= {("all", mode) for mode in MODES}
    assert ("list", "containment+key") in {(row["extraction"], row["mode"]) for row in blocking}
    streams = [row for row in blocking if row["set"].endswith("one writer")]
    assert {row["mode"] for row in streams} == {"behaviour", "behaviour+hazards"}
    verbatim = [row for row in blocking if row["set"] == "verbatim"]
    assert all(row["blocked"] == row["n"] == 10 for row in verbatim)
    assert all({"length_only", "low", "high"} <= row.keys() for row in blocking)
    assert not any(row.get("failed") for row in blocking)
    benign = next(r for r in blocking if r["set"] == "benign" and r["mode"] == "containment+key")
    assert benign["blocked"] == 0

    conditions = [row for row in result["rows"] if row["part"] == "condition"]
    assert "no such model folder" in next(row["skipped"] for row in conditions if row["embedder"].startswith("nowhere"))
    names = [row["condition"] for row in conditions if row.get("set") == "paraphrases, written"]
    assert names[:2] == ["no-forget", "id-delete"]
    assert names[-2:] == ["commit-time", "commit-time, length only"]

    bars = {bar["name"]: bar for bar in result["bars"]}
    assert bars["WriteBlockRate, verbatim"]["met"] is True
    assert len(bars) == 20
    variants = [name for name, bar in bars.items() if bar["of"] == "variant"]
    assert variants == ["ID-Delete worse than No-Forget: PRP@3 gained, worst embedder and set"]  # of no guard at all
    for sender in ("one name", "ever new names"):
        again = bars[f"WriteBlockRate, paraphrases, backbone, sent under {sender}"]
        assert again["value"] >= bars["WriteBlockRate, paraphrases, backbone"]["value"]
    mixed = [row for row in result["rows"] if row["part"] == "mixed"]
    assert {(row["names"], row["distrust_after"]) for row in mixed} == {
        ("one", 0), ("one", 2), ("ever new", 0), ("ever new", 2)
    }  # fmt: skip
    missed = next(row["missed"] for row in blocking if row["set"] == "adaptive")
    assert all({"id", "trick", "writes"} == miss.keys() for miss in missed)

    # Paraphrases may quote what they rewrite; nothing else may quote the corpus.
    rest = json.dumps([row for row in result["rows"] if row["part"] != "paraphrases, backbone"])
    assert "Stir soup" not in rest
    assert "For job" not in rest
