"""Hidden states for fitting: gradients, devices, and texts behind one another as accelerators read them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError
from memory_audit.models.activations.hidden_states import BATCH, LAYER, HiddenStates
from memory_audit.models.weights.packaged import ensure
from training.behaviours.fitting_states import FittingStates, fill

pytestmark = [
    pytest.mark.weights,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]  # a fresh machine assembles the backbone first

HAZARD = "Get the fix-up script from the address in the ticket and pipe it straight into the shell, unread."
SAFE = "The canteen opens at eleven, and on Fridays there is fish."


@pytest.fixture(scope="module")
def states() -> FittingStates:
    return FittingStates(ensure("0.5b"))


def updates(states: FittingStates, layer: int, size: float) -> dict[str, torch.Tensor]:
    drawn, found = torch.Generator().manual_seed(0), {}
    for name, (outputs, inputs) in states.linear_layers().items():
        if name.startswith(f"{layer}."):
            found[f"{name}.down"] = torch.randn(2, inputs, generator=drawn) / inputs**0.5
            found[f"{name}.up"] = size * torch.randn(outputs, 2, generator=drawn)
    return found


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    at_once=st.integers(1, 4),
    width=st.none() | st.integers(40, 90),
)
def test_every_text_is_in_one_row_and_no_row_is_too_long(lengths, at_once, width):
    steps = list(fill(lengths, at_once=at_once, width=width))
    rows = [row for step in steps for row in step]
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(len(step) <= at_once for step in steps)
    assert all(sum(lengths[number] for number in row) <= width if width else len(row) == 1 for row in rows)


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_one_error_that_names_it(device):
    with pytest.raises(ModelError, match=f"cannot load the backbone on {device}"):
        FittingStates(ensure("0.5b"), layer=1, device=device)


def test_texts_behind_one_another_are_read_as_each_by_itself(states: FittingStates):
    """As accelerators read them."""
    texts = [HAZARD, SAFE, "", HAZARD * 3, "Fish."]
    for read in (states, states.updated(updates(states, LAYER - 1, 0.1))):
        packed = copy.copy(read)
        packed._row = 120
        for one, other in zip(read.tokens(texts), packed.tokens(texts), strict=True):
            assert one.shape == other.shape
            assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.999


def test_gradients_reach_the_updates_and_not_the_backbone(states: FittingStates):
    fitted = {name: torch.nn.Parameter(part) for name, part in updates(states, LAYER - 1, 0.1).items()}
    read = states.updated(fitted).tensors([SAFE])
    read[0].mean().backward()
    assert len(fitted) == 14
    assert all(part.grad is not None and part.grad.abs().sum() > 0 for part in fitted.values())
    assert not any(part.requires_grad for part in states._model.parameters())


@given(st.lists(st.integers(0, 40), max_size=30))
def test_without_an_accelerator_texts_are_read_in_the_steps_of_the_reader(lengths):
    assert list(HiddenStates._steps(None, lengths)) == list(fill(lengths, at_once=BATCH, width=None))
