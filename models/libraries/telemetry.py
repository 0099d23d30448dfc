"""An audit tells nobody: what libraries of models would send home is switched off before they are imported.

Called where they are loaded, and not at import: a host that imports a guard keeps its environment until a model is
loaded, and what it has set wins. A library that the host imported before has read its environment already.
"""

from __future__ import annotations

import os

__all__ = ["tell_nobody"]


def tell_nobody() -> None:
    """Switch off the telemetry of Hugging Face's libraries and vLLM."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "VLLM_NO_USAGE_STATS"):
        os.environ.setdefault(name, "1")
