"""Low-rank updates of linear layers (LoRA, Hu et al. 2021), for a backbone that others read without them.

The updated model shares all weights with the plain one, which stays as it is: no second copy in memory, and nothing to
switch while threads read both. Updates are not merged into the weights, whose bfloat16 steps are as large as they.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from memory_audit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Updated", "with_updates"]


class Updated(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A linear layer with an update: `base(x) + up @ (down @ x)`.

    Args:
        base: The layer.
        down: Shape (rank, inputs); fitted where it is a parameter, as `up`.
        up: Shape (outputs, rank).
    """

    def __init__(self, base: torch.nn.Linear, down: torch.Tensor, up: torch.Tensor) -> None:
        super().__init__()
        self.base, self.down, self.up = base, down, up

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's output with the update."""
        narrow = torch.nn.functional.linear(states, self.down.to(states.dtype))
        plain: torch.Tensor = self.base(states)
        return plain + torch.nn.functional.linear(narrow, self.up.to(states.dtype))


def with_updates(model: Any, updates: Mapping[str, torch.Tensor]) -> Any:
    """Return the model with updates; it shares all weights with `model`, which is not changed.

    Args:
        model: Its `layers` are numbered from 0.
        updates: `LAYER.PATH.down` and `LAYER.PATH.up`, as `8.mlp.up_proj.down`, to the matrices of `Updated`.

    Raises:
        ModelError: a name is of no linear layer of the model, a part is missing, or a shape does not fit.
    """
    model = _shallow(model)
    model.layers = torch.nn.ModuleList(model.layers)
    ours: set[str] = set()  # what is shared is not to be set into
    for path in sorted({name.rpartition(".")[0] for name in updates}):
        owner = model.layers
        *parents, leaf = path.split(".")
        for depth, name in enumerate(parents):
            child = owner._modules.get(name)  # noqa: SLF001
            if child is None:
                raise ModelError(f"update {path}: the backbone has no such layer")
            if (reached := ".".join(parents[: depth + 1])) not in ours:
                ours.add(reached)
                child = owner._modules[name] = _shallow(child)  # noqa: SLF001
            owner = child
        owner._modules[leaf] = _updated(owner._modules.get(leaf), path, updates)  # noqa: SLF001
    return model


def _updated(base: object, path: str, updates: Mapping[str, torch.Tensor]) -> Updated:
    down, up = updates.get(f"{path}.down"), updates.get(f"{path}.up")
    if not isinstance(base, torch.nn.Linear) or down is None or up is None:
        raise ModelError(f"update {path}: not a linear layer of the backbone with both parts")
    flat = down.ndim == up.ndim == 2  # noqa: PLR2004
    if not flat or down.shape[1] != base.in_features or up.shape != (base.out_features, len(down)):
        raise ModelError(f"update {path}: shapes {tuple(down.shape)} and {tuple(up.shape)} do not fit the backbone")
    return Updated(base, down, up)


def _shallow(module: Any) -> Any:
    """Copy a module but not its weights: parts set into the copy are not set into the module."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)  # noqa: SLF001
    return twin
