"""How behaviour and hazard are weighed together: the fit, and that the packaged reader has what was fitted for it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.guard.hst.guarding import RememberedEmbedder, Warden
from benchmarks.guard.lockout_unseen import BLIND, CALIBRATED_ON, TEXTS, WAYS, scenarios_in, writes_of
from benchmarks.harness.resultfile import RESULTS
from memory_audit.guard.blocks.hazard import HazardSignature, default_taxonomy
from memory_audit.models.activations.behaviour_cascade import cascade_calibration
from memory_audit.models.fakes import FakeBehaviourReader, FakeEmbedder
from tests.training.digests import packaged_or_alike
from training.behaviours.corpus import notes
from training.behaviours.corpus import scenarios as texts_of_the_reader
from training.doubt_calibration import hazard_slope, read_notes, threshold_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.slow


def test_the_packaged_constants_are_those_that_were_fitted_for_this_reader():
    found = json.loads((RESULTS / "doubt_calibration.json").read_text(encoding="utf-8"))
    row, act_alone = found["rows"]
    _, curve = cascade_calibration()
    assert (row["hazard_slope"], row["fused_nats"]) == (curve.hazard_slope, curve.fused_nats)
    assert act_alone["fused_nats"] == curve.near_nats
    assert re.findall(r"\+acts-\d+-([0-9a-f]+)", found["config"]["acts"]) in packaged_or_alike()


def texts_in(path: Path) -> set[str]:
    return {text for of in scenarios_in(path) for text in (of["request"], of["act"], *of["restated"], *of["safe"])}


@pytest.mark.parametrize("path", [TEXTS, BLIND])
def test_what_is_measured_is_not_what_was_fitted_on(path):
    fitted = texts_in(CALIBRATED_ON) | {note.text for note in notes()}
    fitted |= {text for scenario in texts_of_the_reader() for text in scenario.texts}
    assert not fitted & texts_in(path)


@pytest.mark.parametrize("path", [TEXTS, BLIND, CALIBRATED_ON])
def test_scenarios_are_whole_and_all_their_texts_differ(path):
    found = scenarios_in(path)
    assert len({of["id"] for of in found}) == len(found)
    for of in found:
        assert set(of) == {"id", "kind", "request", "act", "restated", "safe"}
        assert of["kind"] in {"practice", "steering"}
        assert (len(of["restated"]), len(of["safe"])) == tuple(map(len, WAYS.values()))
    assert len(texts_in(path)) == 12 * len(found)


def test_a_hazard_counts_for_what_it_tells():
    rng = np.random.default_rng(0)
    restated = rng.random(4_000) < 0.5
    odds = rng.normal(size=4_000) + 2.0 * restated
    hazards = rng.normal(size=4_000) + 1.0 * restated
    assert 0.4 < hazard_slope(odds, hazards, restated) < 0.6


class Told:
    """Finds no label, and some hazard that a text's length decides; reads for tombstones too."""

    model_id = "told"
    calibrated_for = default_taxonomy().digest

    @property
    def reader(self):
        return self

    async def extract(self, texts, taxonomy):
        return tuple(
            HazardSignature(
                labels=frozenset(), taxonomy=taxonomy.digest, model=self.model_id, hazard_nats=len(text) % 7 - 3.0
            )
            for text in texts
        )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "slope", "threshold"), [("behaviour+hazards", 0.5, "fused_nats"), ("behaviour", 0.0, "near_nats")]
)
def test_what_is_fitted_is_what_the_guard_decides_by(mode, slope, threshold):
    behaviours = FakeBehaviourReader()
    behaviours.curve = replace(FakeBehaviourReader.curve, doubt_nats=-9.0, threshold_nats=3.0)
    warden = Warden(
        extractor=Told(),
        embed=RememberedEmbedder(FakeEmbedder(1_024)),
        behaviours=behaviours,
        taxonomy=default_taxonomy(),
    )
    scenarios = scenarios_in(CALIBRATED_ON)[:6]
    read = asyncio.run(read_notes(warden, scenarios))
    above = float(np.median([note.fused(slope) for note in read if note.in_doubt]))
    behaviours.curve = replace(behaviours.curve, hazard_slope=slope, **{threshold: above})
    refused = [note.largest >= 3.0 or (note.in_doubt and note.fused(slope) >= above) for note in read]
    assert 10 < sum(refused) < len(refused) - 10
    assert [not decision.allowed for decision in asyncio.run(judged(warden, scenarios, mode))] == refused


async def judged(warden, scenarios, mode):
    writes = [write for name in WAYS for write in writes_of(scenarios, name)]
    held = warden.guard(await warden.block_list(writes_of(scenarios, "act")), mode)
    try:
        return await warden.judge(held, writes)
    finally:
        held.close()


HUNDREDTHS = st.integers(-900, 900).map(lambda number: number / 100)


@given(st.lists(st.floats(-9, 9) | HUNDREDTHS, min_size=1, max_size=30), st.integers(0, 5))
def test_the_threshold_lets_so_many_honest_notes_be_refused_and_no_more(honest, most):
    scores = np.array(honest)
    threshold = threshold_of(scores, most)
    if np.isinf(threshold):
        assert len(honest) <= most
    else:
        assert (scores >= threshold).sum() <= most
        assert (scores >= threshold - 0.011).sum() > most
