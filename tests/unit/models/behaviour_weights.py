"""Networks of the reader of behaviours with weights drawn at random, for tests."""

# ruff: noqa: ANN002 - what the tests pass is passed on

from __future__ import annotations

import numpy as np

from memory_audit.models.activations.behaviour_networks import ComparingNetworks, HarmNetworks


def harm_networks(random, hidden=6):
    """Two networks of three units and four heads."""
    return HarmNetworks(
        units=_drawn(random, 2, 3, hidden), units_bias=_drawn(random, 2, 3), queries=_drawn(random, 2, 4, 3),
        values=_drawn(random, 2, 4, 3), bias=np.array([0.25, 0.75], np.float32),
    )  # fmt: skip


def comparing_networks(random, hidden=6, dimensions=4):
    """Two networks of three units, five in the second layer, and two heads."""
    return ComparingNetworks(
        units=_drawn(random, 2, 3, hidden), units_bias=_drawn(random, 2, 3),
        matched=_drawn(random, 2, dimensions, hidden), matched_bias=_drawn(random, 2, dimensions),
        mixed=_drawn(random, 2, 5, 3 + 2 * dimensions), mixed_bias=_drawn(random, 2, 5),
        queries=_drawn(random, 2, 2, 8), values=_drawn(random, 2, 2, 8), bias=_drawn(random, 2),
    )  # fmt: skip


def _drawn(random, *shape):
    return random.normal(size=shape).astype(np.float32)
