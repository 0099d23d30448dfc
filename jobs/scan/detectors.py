"""Detectors by name: those that come with the package, and those of entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.scan.detectors import DETECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.models.loading import Part
    from memory_audit.scan.detector import Detector, Need

__all__ = ["GROUP", "chosen", "detector_names", "load_detector", "models_of"]

GROUP = "memaudit.detectors"
"""Of entry points: each names a function without arguments that returns a `Detector`."""

_MODELS: Mapping[Need, frozenset[Part]] = {
    "vectors": frozenset({"embedder"}), "graph": frozenset({"embedder", "nli"}),
}  # fmt: skip
"""Which models answer for what a detector reads; a guard brings its own."""


@cache
def _of_others() -> dict[str, object]:
    return {point.name: point for point in entry_points(group=GROUP)}


def detector_names() -> tuple[str, ...]:
    """Return all detectors' names, those that come with the package first."""
    return (*DETECTORS, *sorted(_of_others().keys() - DETECTORS.keys()))


def chosen(only: Sequence[str], without: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the detectors to run, `only` or all but for `without`, and why others cannot, one line each.

    Raises:
        UsageError: there is none of a name, or none is left; one of `only` cannot be loaded.
    """
    known = detector_names()
    for name in (*only, *without):
        if name not in known:
            raise UsageError(f"no detector {name!r:.80}; there are {', '.join(known)}")
    names, missing = [], []
    for name in known:
        if name not in without and (not only or name in only):
            try:
                load_detector(name)
                names.append(name)
            except UsageError as error:
                if only:
                    raise
                missing.append(str(error))
    if not names:
        raise UsageError("no detector is left to run")
    return tuple(names), missing


@cache
def load_detector(name: str) -> Detector:
    """Make a detector, once in this process.

    Raises:
        UsageError: it cannot be loaded.
    """
    if (make := DETECTORS.get(name)) is not None:
        return make()
    try:
        detector: Detector = _of_others()[name].load()()  # type: ignore[attr-defined]
    except Exception as error:
        raise UsageError(f"detector {name:.80}: {type(error).__name__}: {error}") from error
    return detector


def models_of(detectors: Iterable[str]) -> frozenset[Part]:
    """Return which models of an executor these detectors ask."""
    needs = (need for name in detectors for need in load_detector(name).needs)
    return frozenset().union(*(_MODELS.get(need, frozenset()) for need in needs))
