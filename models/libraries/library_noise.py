"""What model libraries print by themselves and tells a user nothing: silenced by name, and nothing else.

Errors stay, and what the user has set in the environment wins. vLLM works in child processes, which only the
environment reaches; and what a child logs while it imports vLLM, before any of its settings is read, is silenced only
where the program's main file calls `quiet_imports` as it is imported, since a child imports that first.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quiet_imports", "quiet_vllm", "without_bars"]

_REDUCE_OP = "`torch.distributed.reduce_op` is deprecated"
"""vLLM looks at every attribute of every module, this one included."""

_FILTERS = (
    f"ignore:{_REDUCE_OP}:FutureWarning",
    # An engine that is ended leaves its shared memory to this process, which clears it up and says so.
    "ignore:resource_tracker:UserWarning:multiprocessing.resource_tracker",
)


_OF_TRITON = ("vllm.triton_utils.importing", "torch._library.triton")
"""Loggers that miss it. It has no CPU backend."""


def quiet_imports() -> None:
    """Silence what importing vLLM logs on a CPU. Idempotent, and imports nothing."""
    for name in _OF_TRITON:
        logging.getLogger(name).setLevel(logging.ERROR)


def quiet_vllm() -> None:
    """Silence what vLLM's processes say on every start; called before vLLM is imported. Idempotent."""
    quiet_imports()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the NUMA binding of a worker's memory
    warnings.filterwarnings("ignore", message=re.escape(_REDUCE_OP), category=FutureWarning, append=True)
    own = [item for item in os.environ.get("PYTHONWARNINGS", "").split(",") if item and item not in _FILTERS]
    os.environ["PYTHONWARNINGS"] = ",".join((*_FILTERS, *own))  # of two that fit, Python takes the later


@contextmanager
def without_bars() -> Iterator[None]:
    """Load weights without transformers' bar, which draws over this project's own; bars of downloads stay."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars  # noqa: PLC0415
    from transformers.utils import logging as bars  # noqa: PLC0415 - takes seconds to import

    if "HF_HUB_DISABLE_PROGRESS_BARS" in os.environ or not bars.is_progress_bar_enabled():
        yield
        return
    downloads_were_off = are_progress_bars_disabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()
        if downloads_were_off:
            disable_progress_bars()
