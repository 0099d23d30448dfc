"""What connectors of vector stores have in common: options that name fields, and a document as a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.integrations.documents import OWNERS, TEXT_FIELDS, record_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.integrations.record import Record

__all__ = ["Options", "chosen", "read"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    collection: str | None = None
    """Default: every one."""

    text: str | None = None
    """Field of what the agent is shown; documents without it are then passed over. Default: the first of a list."""

    owner: str = ",".join(OWNERS)
    """Fields of whose it is, divided by commas, the one that isolates most first; without them, the collection's."""


def chosen(options: Options, names: Iterable[str], where: object) -> list[str]:
    """Return the collections that are read, by name.

    Raises:
        UsageError: none, or not the one that is named.
    """
    found = sorted(names)
    wanted = [name for name in found if options.collection in {None, name}]
    if not wanted:
        listed = ", ".join(map(repr, found))[:200] or "none"
        raise UsageError(f"{where}: collections {listed}: name that of the memories with --option collection=NAME")
    return wanted


def read(  # noqa: PLR0913, PLR0917 - a document, and how it is read
    options: Options, collection: str, name: str, fields: Mapping[str, Any], where: str,
    text_fields: Sequence[str] = TEXT_FIELDS,
) -> Record | None:  # fmt: skip
    """Return a document as a record; None where it lacks the field that is named.

    Raises:
        UsageError: no field of the list is there.
    """
    asked = text_fields if options.text is None else (options.text,)
    if not any(isinstance(value_of(fields, field), str) for field in asked):
        if options.text is not None:
            return None
        raise UsageError(
            f"{where} has no text in {', '.join(asked)}; its fields: {', '.join(map(repr, fields))[:200] or 'none'}: "
            "--option text=FIELD names it, and passes over what lacks it"
        )
    owners = [field for field in options.owner.split(",") if field]
    return record_of(collection, name, fields, text_fields=asked, owners=owners)
