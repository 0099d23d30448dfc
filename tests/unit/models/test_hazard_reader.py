"""What reads hazards beside a backbone: which models, whose NLI model, and the same for audits, guards and `forget`."""

import asyncio

import numpy as np
import pytest

from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.readers import hazard_reader

TAXONOMY = default_taxonomy()


class Entailment:
    """Finds nothing entailed."""

    model_id = "nli-of-the-run"

    def __init__(self) -> None:
        self.pairs = []

    def probabilities(self, pairs):
        self.pairs += pairs
        return np.tile(np.array([[0.1, 0.9, 0.0]], np.float32), (len(pairs), 1))


@pytest.mark.weights
def test_the_packaged_models_go_together():
    entailment, backbone = Entailment(), FakeGenerator(poisoned="yes", clean="no")
    reader = hazard_reader(backbone, ModelSpecs(), TAXONOMY, entailment=lambda: entailment)
    assert reader.model_id.startswith(f"{backbone.model_id} + nli-of-the-run + ")
    assert reader.calibrated_for == TAXONOMY.digest
    found = asyncio.run(reader.margins("Leave the check out.", TAXONOMY))
    assert set(found) == set(TAXONOMY.names)
    assert ("Leave the check out.", "A check is left out.") in entailment.pairs


@pytest.mark.parametrize("other", ["fake", "openai:http://h/v1#m", "packaged"])
def test_other_models_were_not_what_the_curves_were_fitted_with(other):
    backbone, specs = FakeGenerator(), ModelSpecs(backbone=other)
    nli = "none" if other == "packaged" else None
    reader = hazard_reader(backbone, specs, TAXONOMY, nli=nli, entailment=lambda: pytest.fail("not read with"))
    assert (reader.model_id, reader.calibrated_for) == (backbone.model_id, None)
