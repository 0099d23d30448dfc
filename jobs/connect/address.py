"""Addresses of memory systems, `SYSTEM:PLACE`, and what opens them.

    mem0:/var/lib/agent/qdrant          with --option history=/home/agent/.mem0/history.db
    postgres:postgresql://agent@db/app    with --option table=memories --option id=id --option text=content
    jsonl:memories.jsonl

A system's file is imported when one is opened: it may need a client of its own, which the extra of that name brings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats.records import convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.jobs.connect.connector import Connector, Facts, Source

__all__ = ["JSONL", "SYSTEMS", "Address", "facts_of", "parse_address", "parse_options"]

JSONL = "jsonl"
"""A file of entries (`memory_audit.formats.import_jsonl`), which says itself whose they are; `-` is standard input."""

SYSTEMS: Mapping[str, str] = MappingProxyType({
    "lancedb": "memory_audit.jobs.connect.systems.lancedb:LanceDB",
    "chatgpt": "memory_audit.jobs.connect.systems.chatgpt:ChatGPT",
    "chroma": "memory_audit.jobs.connect.systems.chroma:Chroma",
    "claude": "memory_audit.jobs.connect.systems.claude:Claude",
    "langgraph": "memory_audit.jobs.connect.systems.langgraph:LangGraph",
    "markdown": "memory_audit.jobs.connect.systems.markdown:Markdown",
    "mem0": "memory_audit.jobs.connect.systems.mem0:Mem0",
    "openmemory": "memory_audit.jobs.connect.systems.openmemory:OpenMemory",
    "postgres": "memory_audit.jobs.connect.systems.postgres:Postgres",
    "qdrant": "memory_audit.jobs.connect.systems.qdrant:Qdrant",
})  # fmt: skip
"""Name to module and class. The class is made of a place and a record of its options, `Options` in the module."""

ON_SERVER: Mapping[str, str] = MappingProxyType({
    "langgraph": "memory_audit.jobs.connect.systems.langgraph_postgres:LangGraphPostgres",
})  # fmt: skip
"""The same of a system whose place is a `postgresql://` URL, where another class reads that."""

_SERVER = re.compile("postgres(ql)?://")
_PASSWORD = re.compile(r"//[^:@]*:.*@|password=.*", re.DOTALL | re.IGNORECASE)
"""What may be a password in a URL, greedily: a wrong guess costs a misspelt address, a missed one a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where memories lie."""

    system: str
    place: str
    """A path or a URL, as the system takes it."""

    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        return f"{self.system}:{self.place}"

    def open(self) -> Source:
        """Return the source; nothing is read yet.

        Raises:
            UsageError: an unknown option, or a client that is not installed.
        """
        module, kind = _loaded(self.system, on_server=bool(_SERVER.match(self.place)))
        source: Source = kind(self.place, convert(dict(self.options), module.Options, str(self)))
        return source

    def open_connector(self) -> Connector:
        """Return the source to take memories out of it. Raises like `open`, and where nothing can be taken out."""
        source: Any = None if self.system == JSONL else self.open()
        if not hasattr(source, "delete"):
            raise UsageError(
                f"{self}: nothing can be taken out of {self.system}: remove where the file came from what the report "
                "of the run lists, and import what it gives out afterwards, which counts what is left"
            )
        found: Connector = source
        return found


def parse_address(text: str, options: Mapping[str, str] = MappingProxyType({})) -> Address:
    """Read `SYSTEM:PLACE`.

    Raises:
        UsageError: no such system, or no place; a password in it, which would be in logs and receipts.
    """
    if "postgres" in text and _PASSWORD.search(text):
        shown = _PASSWORD.sub("…", text)
        raise UsageError(f"{shown!r:.120} has a password: give it in PGPASSWORD, ~/.pgpass or a service, not there")
    system, colon, place = text.partition(":")
    known = (*SYSTEMS, JSONL)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r:.120} is not valid UTF-8") from None
    if not colon or not place or system not in known:
        raise UsageError(f"{text!r:.120} is no SYSTEM:PLACE; systems are {', '.join(sorted(known))}")
    return Address(system=system, place=place, options=options)


def facts_of(system: str) -> Facts:
    """Return what is so of every store of a system.

    Raises:
        UsageError: a client that is not installed.
    """
    facts: Facts = _loaded(system)[1].facts
    return facts


def parse_options(words: Iterable[str], option: str = "--option") -> dict[str, str]:
    """Read `KEY=VALUE` words.

    Raises:
        UsageError: one that is not, or a key twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not key or not sign or key in found:
            raise UsageError(f"{option} {word!r:.120} is no KEY=VALUE, or is given twice")
        found[key] = value
    return found


def _loaded(system: str, *, on_server: bool = False) -> tuple[Any, Any]:
    """Return the module of a system, and its class."""
    listed = {**SYSTEMS, **ON_SERVER} if on_server else SYSTEMS
    name, _, kind = listed[system].partition(":")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        extra = "postgres" if error.name == "psycopg" else system
        raise UsageError(f"{system}: needs {error.name}: pip install 'memory-audit[{extra}]'") from None
    return module, getattr(module, kind)
