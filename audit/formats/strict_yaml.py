"""YAML (and so JSON) of files that people write, read strictly: plain values only, each said once.

Accepted are mappings, lists, texts, numbers, true, false and null as PyYAML's safe loader reads them (YAML 1.1).
Refused, each with one line that names the file: aliases and merge keys (they multiply), tags (PyYAML's constructors of
tagged values fail in many ways), a member twice (one of them is not read), dates and times, numbers that are not finite
or beyond 64 bits, half surrogates, nesting too deep, and a file above its limit, before it is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from memory_audit.errors import UsageError
from memory_audit.formats.nesting import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["decode"]

LARGEST_NUMBER = 1 << 64

_MERGE = "tag:yaml.org,2002:merge"
# libyaml's parser is about ten times as fast as the Python one, which reads the same where the library is missing.
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decode(data: bytes, *, max_bytes: int, where: str) -> Any:
    """Read one YAML document.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    if len(data) > max_bytes:
        raise UsageError(f"{where}: {len(data)} bytes, at most {max_bytes} bytes are allowed")
    try:
        text = data.decode()
        _check_events(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader that refuses more
        _check(value)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UsageError(f"{where}: not valid YAML ({' '.join(str(error).split())[:160]})") from None
    return value


def _check_events(text: str) -> None:
    """Refuse what a file has no need of before anything is built of it: libyaml builds nested nodes on the C stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_SAFE_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"tags are not allowed: {event.tag!r:.60} in line {event.start_mark.line + 1}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise yaml.YAMLError(f"more than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Loader(_SAFE_LOADER):  # type: ignore[misc, valid-type]
    """Refuses merge keys and a member that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the library's signature
        if any(key.tag == _MERGE for key, _ in node.value):
            raise yaml.YAMLError(f"merge keys are not allowed: line {node.start_mark.line + 1}")
        names: set[str] = set()
        for key, _ in node.value:
            name = str(self.construct_object(key, deep=True))
            if name in names:
                raise yaml.YAMLError(f"a member is there twice near line {key.start_mark.line + 1}: {name!r:.60}")
            names.add(name)
        return super().construct_mapping(node, deep=deep)  # type: ignore[no-any-return]


def _check(value: Any) -> None:
    """Raise ValueError for a value that is not plain."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check(key)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif isinstance(value, str):
        value.encode()  # half a surrogate pair raises UnicodeEncodeError, a ValueError
    elif isinstance(value, int | float):
        if not abs(value) <= LARGEST_NUMBER:  # NaN is not
            raise ValueError("a number that is not finite or beyond 64 bits")
    elif value is not None:
        raise ValueError(f"a {type(value).__name__} where text, numbers, lists and mappings are expected; quote it")
