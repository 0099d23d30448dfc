"""How deeply JSON from outside may be nested: what one function still reads, one deeper in the stack may not.

Python gives up at a depth that depends on the caller. A value that was read there can fail later, where it is written
or shown; so readers refuse what is far below that depth already.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_DEPTH", "too_deep"]

MAX_DEPTH = 100


def too_deep(raw: bytes, value: Any) -> bool:
    """Tell whether a value has more than MAX_DEPTH levels of lists and objects.

    Args:
        raw: Its JSON: with few brackets nothing has to be walked.
        value: What was decoded.
    """
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for node in level if isinstance(node, dict | list) for item in _items(node)]
        if not level:
            return False
    return True


def _items(node: dict[str, Any] | list[Any]) -> Any:
    return node.values() if isinstance(node, dict) else node
