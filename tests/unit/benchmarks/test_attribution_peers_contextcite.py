"""Behaviour of the ContextCite side: counting, and the package's own code on an agent's prompts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.attribution.peers import contextcite
from benchmarks.attribution.peers.contextcite import ABLATIONS, ForwardPasses, attribute
from tests.unit.benchmarks.attribution_world import make_world
from tests.unit.benchmarks.word_tokenizer import word_tokenizer


class Model:
    """Logits of a two-token vocabulary per position; the second token is likelier with the marker in the prompt."""

    device = "cpu"
    marker = 7

    def __init__(self, torch) -> None:
        self._torch = torch
        self.calls = 0

    def __call__(self, input_ids, attention_mask, logits_to_keep) -> SimpleNamespace:
        self.calls += 1
        marked = (input_ids == self.marker).sum(dim=1)
        logits = self._torch.zeros(len(input_ids), logits_to_keep, 16)
        logits[:, :, 5] = (3.0 * marked)[:, None]
        return SimpleNamespace(logits=logits.to(self._torch.bfloat16))


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def test_equal_prompts_are_computed_once_and_counted_each_time(torch):
    model = Model(torch)
    passes = ForwardPasses(model)
    passes.response_tokens = 2
    ids = torch.tensor([[1, 7, 5, 5]])
    first = passes(input_ids=ids, attention_mask=ids, labels=ids)
    second = passes(input_ids=ids, attention_mask=ids)
    assert model.calls == passes.computed.calls == 1
    assert (passes.cost.calls, passes.cost.usage.prompt_tokens) == (2, 8)
    assert passes.cost.seconds == pytest.approx(2 * passes.computed.seconds)
    assert first.logits is second.logits
    assert first.logits.shape == (1, 3, 16)
    assert first.logits.dtype == torch.float32


def test_a_forgotten_prompt_is_computed_again(torch):
    model = Model(torch)
    passes = ForwardPasses(model)
    ids = torch.tensor([[1]])
    passes(input_ids=ids, attention_mask=ids)
    passes.forget()
    passes(input_ids=ids, attention_mask=ids)
    assert model.calls == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not contextcite.installed(), reason="context-cite or datasets is not installed")
def test_the_package_ranks_the_memory_that_makes_the_answer_likely(tmp_path, torch):
    tokenizer = word_tokenizer({"POISON": Model.marker, "HARM": 5})
    world = make_world(tmp_path, [2])
    whole, part = attribute(world.trial, Model(torch), tokenizer, part=lambda output: (0, len(output)))
    world.close()
    scores = whole.scores["e1"]
    assert max(scores, key=scores.__getitem__) == "m0002"
    assert whole.chosen == world.ids(2)
    assert whole.cost.calls == ABLATIONS
    assert whole.more["forward_passes_computed"] <= 2**4
    assert part is not None
    assert np.allclose(list(part.scores["e1"].values()), list(scores.values()))
