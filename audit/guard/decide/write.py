"""A write under judgement: its texts and digests, each made once, when first needed."""

from __future__ import annotations

import hashlib
import itertools
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.guard.text.forms import fingerprint, is_foreign, text_forms, unmarked, wholes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from memory_audit.entry import Entry

__all__ = ["UNNAMED", "Texts", "Write"]

UNNAMED = "unknown"
"""Principal of a write that names none: many writers' name, whose writes are no instalments of one behaviour."""


class Texts:
    """What is read together: the forms of one write, or the pieces of several."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        self.forms = forms

    @cached_property
    def foreign(self) -> NDArray[np.bool_]:
        """Which of them no key can place, shape (forms,); see `memory_audit.guard.text.forms.is_foreign`."""
        return np.asarray([is_foreign(text) for text in self.forms], np.bool_)

    @cached_property
    def key(self) -> bytes:
        """Digest of the forms."""
        return _digest(self.forms)


class Write:
    """An entry that is to be written."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def writer(self) -> str | None:
        """Who wrote it; None where it names nobody."""
        return None if self.entry.principal == UNNAMED else self.entry.principal

    @cached_property
    def key(self) -> bytes:
        """Digest of what is read of it."""
        return _digest((self.entry.response, *itertools.chain.from_iterable(self.entry.metadata.items())))

    @cached_property
    def texts(self) -> Texts:
        """Its forms (`memory_audit.guard.text.forms.text_forms`)."""
        return Texts(text_forms(self.entry))

    def prints(self, salt: str) -> Iterator[bytes]:
        """Yield the fingerprints of all texts whose words are its own."""
        whole = wholes(self.entry)
        for text in dict.fromkeys((*whole, *map(unmarked, whole), *self.texts.forms)):  # most often one text
            found = fingerprint(text, salt)
            if found is not None:
                yield found


def _digest(texts: Iterable[str]) -> bytes:
    """Digest texts, each with its length."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()
