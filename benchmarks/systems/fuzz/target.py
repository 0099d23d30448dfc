"""What a fuzz target is: a decoder, what it may raise, and where its inputs come from. Engines are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.systems.fuzz.mutation import mutate, mutate_lines, mutate_tokens, mutate_value
from memory_audit.errors import AuditError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["NotCanonicalError", "Shape", "Target", "as_is", "same"]

Shape = Literal["bytes", "canonical json", "json", "json lines", "yaml"]


class NotCanonicalError(Exception):
    """A decoder took bytes that are not the one encoding of what it returned: a finding, like a foreign exception."""


def as_is(data: bytes) -> bytes:
    """Return the input."""
    return data


def same(again: bytes | str, data: bytes | str) -> None:
    """Compare an input with the encoding of what was decoded.

    Raises:
        NotCanonicalError: they differ.
    """
    if again != data:
        raise NotCanonicalError(f"decoded {data!r:.200}, which is written {again!r:.200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder."""

    name: str
    decode: Callable[[bytes], object]
    """Raises one of `raises`, or takes the input and has compared it with its encoding where there is only one."""

    seeds: tuple[bytes, ...]
    """Inputs that the decoder takes, before `wrap`."""

    raises: type[AuditError] = VerificationError
    shape: Shape = "bytes"
    """How inputs are made of seeds, see `benchmarks.systems.fuzz.mutation`."""

    wrap: Callable[[bytes], bytes] = as_is
    """Put around a mutated seed: a signature, so that inputs get past it to the rules behind."""

    def make(self, draw: Random) -> bytes:
        """Return one input; the same for the same draws."""
        return self.wrap(self._inner(draw))

    def accepts(self, data: bytes) -> bool:
        """Tell whether the decoder takes an input; every exception but `raises` goes on."""
        try:
            self.decode(data)
        except self.raises:
            return False
        return True

    def _inner(self, draw: Random) -> bytes:
        if self.shape == "bytes":
            return mutate(draw, list(self.seeds))
        seed = draw.choice(self.seeds)
        kind = draw.randrange(4)
        if kind == 0:
            return mutate(draw, list(self.seeds))
        if kind == 1 or self.shape == "yaml":
            return mutate_tokens(draw, seed)
        if self.shape == "json lines":
            return mutate_lines(draw, seed)
        return mutate_value(draw, seed, canonical=self.shape == "canonical json")
