"""Hidden states through which gradients flow, on any device: what updates are fitted on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.errors import ModelError
from memory_audit.models.activations.hidden_states import BATCH, LAYER, WINDOW_TOKENS, HiddenStates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch

__all__ = ["ROW_TOKENS", "FittingStates", "fill"]

ROW_TOKENS = 2_048
"""Of a row of an accelerator, which takes many texts behind one another in one step."""


class FittingStates(HiddenStates):
    """Hidden states that updates are fitted on; all that is fitted on an accelerator can be read without one.

    Args:
        folder: See `HiddenStates`, also for `layer` and `window`.
        device: As torch names it.

    Raises:
        ModelError: the folder cannot be loaded, or there is no such device.
    """

    def __init__(self, folder: Path, layer: int = LAYER, *, window: int = WINDOW_TOKENS, device: str = "cpu") -> None:
        super().__init__(folder, layer, window=window)
        import torch  # noqa: PLC0415 - heavy

        try:
            self._model = self._model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"{folder}: cannot load the backbone on {device:.40} ({error!s:.200})") from error
        if device != "cpu":
            # Gradients of one of its attention kernels were no numbers on an H200.
            torch.backends.cuda.enable_cudnn_sdp(enabled=False)
        self.device = device
        self._row = None if device == "cpu" else ROW_TOKENS

    def tensors(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """Return what `tokens` does as tensors on the device, through which gradients flow to the updates."""
        return self._tensors(self._whole(texts))

    def linear_layers(self) -> dict[str, tuple[int, int]]:
        """Return outputs and inputs of the layers that can be updated, by the names that updates have."""
        import torch  # noqa: PLC0415

        named = self._model.layers.named_modules()
        return {name: tuple(part.weight.shape) for name, part in named if isinstance(part, torch.nn.Linear)}

    def _steps(self, lengths: Sequence[int]) -> Iterator[list[list[int]]]:
        return fill(lengths, at_once=BATCH, width=self._row)

    def _seen(self, rows: Any) -> Any:
        from memory_audit.models.activations.packing import CAUSAL  # noqa: PLC0415 - loads torch

        return rows.masks()[CAUSAL] if self._row and not self._both_ways else super()._seen(rows)


def fill(lengths: Sequence[int], *, at_once: int, width: int | None) -> Iterator[list[list[int]]]:
    """Yield the numbers of texts in each row of a step, the longest texts first.

    On an accelerator a step costs by its rows and their width, and full rows are a third of the work.

    Args:
        lengths: Of the texts.
        at_once: Rows of a step.
        width: As many texts are put into a row as fit in so many tokens; None: one.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    rows: list[list[int]] = []
    filled: list[int] = []
    for number in order:
        wanted = lengths[number]
        room = (row for row, used in enumerate(filled) if used + wanted <= width) if width else iter(())
        place = next(room, len(rows))
        if place == len(rows):
            rows.append([])
            filled.append(0)
        rows[place].append(number)
        filled[place] += wanted
    for start in range(0, len(rows), at_once):
        yield rows[start : start + at_once]
