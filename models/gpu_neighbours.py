"""Candidates for nearest neighbours by exact products on a GPU, in float32; who is nearest is decided elsewhere.

`memory_audit.consistency.neighbours.nearest` ranks the candidates in float64. So the lists are exact, but where more
vectors than there are spare candidates are as near as the k-th within float32's rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GpuCandidates"]

MOST_VECTORS = 10_000_000
"""15 GB of 384 dimensions: more are for an inverted file."""

FEWEST_VECTORS = 2_000
"""Fewer are compared on a CPU in half a second, to the last bit as on a machine without a GPU."""

SCANNED_FLOATS = 1 << 28
"""Similarities held at once (1 GiB)."""


class GpuCandidates:
    """Implements `memory_audit.consistency.neighbours.Propose` with torch."""

    def __init__(self, device: str = "cuda", *, fewest: int = FEWEST_VECTORS) -> None:
        self._device, self._fewest = device, fewest

    def __call__(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.int64] | None:
        """Return the `count` nearest of each vector, shape (n, count); None where there are too few or too many."""
        if not self._fewest <= len(vectors) <= MOST_VECTORS:
            return None
        import torch  # noqa: PLC0415 - takes seconds to import

        held = torch.from_numpy(vectors).to(self._device)
        found = np.empty((len(vectors), count), np.int64)
        block = max(1, SCANNED_FLOATS // len(vectors))
        with torch.inference_mode():
            for start in range(0, len(vectors), block):
                similarity = held[start : start + block] @ held.T  # torch multiplies in float32 unless told otherwise
                found[start : start + block] = similarity.topk(count, dim=1, sorted=False).indices.cpu().numpy()
        return found
