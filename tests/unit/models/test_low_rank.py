"""Low-rank updates: what they compute, what they share, and which are refused."""

from __future__ import annotations

import pytest
import torch

from memory_audit.errors import ModelError
from memory_audit.models.activations.low_rank import with_updates


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential()
        self.inner.up = torch.nn.Linear(3, 5, bias=True)
        self.norm = torch.nn.LayerNorm(5)
        self.down = torch.nn.Linear(5, 3, bias=False)

    def forward(self, states):
        return states + self.down(self.norm(self.inner.up(states)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, states):
        for layer in self.layers:
            states = layer(states)
        return states


UPDATES = {
    "1.inner.up.down": torch.tensor([[1.0, -1.0, 0.5]]), "1.inner.up.up": torch.tensor([[0.2], [0], [1], [-1], [0.3]]),
    "1.down.down": torch.tensor([[0.1, 0, 0.2, 0, -1.0]]), "1.down.up": torch.tensor([[1.0], [2.0], [-0.5]]),
    "2.down.down": torch.tensor([[0.1, 1, 0.2, 1, -1.0]]), "2.down.up": torch.tensor([[-1.0], [2.0], [0.5]]),
}  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


def test_an_update_is_added_to_the_weights_and_the_model_stays_as_it_is(model):
    states = torch.randn(4, 3)
    before = model(states)
    updated = with_updates(model, UPDATES)
    assert torch.equal(model(states), before)
    merged = Model()
    merged.load_state_dict(model.state_dict())
    with torch.no_grad():
        for path in {name.rpartition(".")[0] for name in UPDATES}:
            merged.layers.get_submodule(path).weight += UPDATES[f"{path}.up"] @ UPDATES[f"{path}.down"]
    assert torch.allclose(updated(states), merged(states), atol=1e-5)
    assert (updated(states) - before).abs().mean() > 0.1


def test_what_is_not_updated_is_the_models_own(model):
    updated = with_updates(model, UPDATES)
    assert updated.layers[0] is model.layers[0]
    assert updated.layers[1].norm is model.layers[1].norm
    assert updated.layers[1].inner.up.base is model.layers[1].inner.up
    assert {part.data_ptr() for part in updated.parameters()} == {part.data_ptr() for part in model.parameters()}


def test_an_update_of_an_updated_model_is_added_to_its_own(model):
    states = torch.randn(4, 3)
    once = with_updates(model, UPDATES)
    both = with_updates(model, {name: part for name, part in UPDATES.items() if name.startswith("1.")})
    both = with_updates(both, {name: part for name, part in UPDATES.items() if name.startswith("2.")})
    assert torch.equal(both(states), once(states))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"3.down.down": torch.zeros(1, 5), "3.down.up": torch.zeros(3, 1)}, "no such layer"),
        ({"1.outer.up.down": torch.zeros(1, 3), "1.outer.up.up": torch.zeros(5, 1)}, "no such layer"),
        ({"1.norm.down": torch.zeros(1, 5), "1.norm.up": torch.zeros(5, 1)}, "not a linear layer"),
        ({"0.down.down": torch.zeros(1, 5)}, "with both parts"),
        ({"0.down": torch.zeros(1, 5)}, "not a linear layer"),
        ({"down": torch.zeros(1, 5)}, "not a linear layer"),
        ({"1.down.down": torch.zeros(1, 4)}, "do not fit the backbone"),
        ({"1.down.up": torch.zeros(3, 2)}, "do not fit the backbone"),
        ({"1.down.up": torch.zeros(3)}, "do not fit the backbone"),
        ({"1.down.down": torch.zeros(5)}, "do not fit the backbone"),
        ({"1.down.down": torch.tensor(1.0)}, "do not fit the backbone"),
    ],
)
def test_updates_that_do_not_fit_are_refused(model, changed, message):
    with pytest.raises(ModelError, match=message):
        with_updates(model, UPDATES | changed)
