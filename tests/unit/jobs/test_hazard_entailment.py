"""Which audits read hazards by entailment too, and that they ask their executor's NLI model."""

import asyncio

import numpy as np
import pytest

from memory_audit.config import AuditConfig
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.jobs.run.block_records import entailment_beside

TAXONOMY = default_taxonomy()


class Executor:
    """Knows an NLI model that finds nothing entailed."""

    def __init__(self) -> None:
        self.pairs = []

    def entail(self, pairs):
        self.pairs += pairs
        return np.tile(np.array([[0.1, 0.9, 0.0]], np.float32), (len(pairs), 1))

    def model_ids(self):
        return {"nli": "nli-of-the-run"}


@pytest.mark.weights
def test_the_packaged_models_go_together():
    executor = Executor()
    statements = entailment_beside(executor, AuditConfig(), TAXONOMY)
    assert statements.model_id.startswith("nli-of-the-run + ")
    found = asyncio.run(statements.log_odds("Leave the check out.", dict.fromkeys(TAXONOMY.names, 0.0)))
    assert set(found) == set(TAXONOMY.names)
    assert ("Leave the check out.", "A check is left out.") in executor.pairs


@pytest.mark.parametrize("other", [{"nli": "fake"}, {"backbone": "fake"}, {"backbone": "openai:http://h/v1#m"}])
def test_other_models_were_not_what_the_curves_were_fitted_with(other):
    assert entailment_beside(Executor(), AuditConfig(**other), TAXONOMY) is None
