"""Thresholds of hazard labels for one model: its yes is biased, and by another amount for each question.

Calibrate on texts that are no benchmark's. `calibration_texts` returns some written for this project: notes of agents
that keep books, run a laboratory, edit films, tend gardens and answer guests, with the labels they have. They are for
the packaged taxonomy; for one of your own, bring labelled texts of your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from memory_audit import outside_json
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_audit.guard.blocks.hazard import Taxonomy

__all__ = ["LabelledText", "calibration_texts", "parse_labelled", "thresholds"]

MAX_LINE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledText:
    """A text and the hazards that it has in truth."""

    text: str
    labels: frozenset[str]


def calibration_texts() -> tuple[LabelledText, ...]:
    """Return the packaged texts."""
    data = resources.files("memory_audit.models.hazards").joinpath("hazard_calibration.jsonl").read_bytes()
    return tuple(parse_labelled(data.splitlines(), "the packaged calibration texts"))


def parse_labelled(lines: Iterable[bytes], source: str, known: Collection[str] | None = None) -> Iterable[LabelledText]:
    """Parse JSON lines `{"text": "…", "labels": ["skip_validation"]}`.

    Args:
        lines: Raw lines.
        source: Name of the file, for messages.
        known: Labels that there are; None for any: one that is misspelt would count as its text's not having it.

    Raises:
        UsageError: names the source, the line and the rule broken.
    """
    for number, raw in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        if len(raw) > MAX_LINE_BYTES:
            raise UsageError(f"{where}: {len(raw)} bytes, at most {MAX_LINE_BYTES} are allowed")
        if not raw.strip():
            continue
        value = outside_json.decode(raw, where)
        if not isinstance(value, dict) or value.keys() != {"text", "labels"} or not isinstance(value["text"], str):
            raise UsageError(f'{where}: expected an object with "text" and "labels"')
        labels = value["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise UsageError(f"{where}: labels must be a list of names")
        if len(set(labels)) != len(labels):
            raise UsageError(f"{where}: a label is named twice")
        if known is not None and (unknown := sorted(set(labels) - set(known))):
            raise UsageError(f"{where}: no label {unknown[0]!r:.60}; there are {', '.join(known)}")
        yield LabelledText(text=value["text"], labels=frozenset(labels))


def thresholds(
    examples: Sequence[tuple[Mapping[str, float], frozenset[str]]], taxonomy: Taxonomy, *, most_false: float = 0.01
) -> dict[str, float]:
    """Choose each label's threshold: the lowest that at most a given share of the texts without the label exceed.

    A guard sees far more harmless writes than hazardous ones, so it is their share that is fixed.

    Args:
        examples: Margins of a text in nats, and the labels that it has in truth.
        taxonomy: The labels.
        most_false: Share of the texts without a label that may be given it.

    Returns:
        Label to threshold in nats, for the labels that have both positive and negative examples.

    Raises:
        UsageError: the share is not between 0 and 1.
    """
    if not 0.0 <= most_false < 1.0:
        raise UsageError(f"the share of false labels is {most_false}, expected 0 to 1")
    found: dict[str, float] = {}
    for label in taxonomy.labels:
        free = sorted((margins[label.name] for margins, truth in examples if label.name not in truth), reverse=True)
        if not free or len(free) == len(examples):
            continue
        highest = free[int(most_false * len(free))]
        above = [margins[label.name] for margins, _ in examples if margins[label.name] > highest]
        # Half way to the next text above: the labels of the examples are those of any threshold in between.
        found[label.name] = round((highest + min(above)) / 2 if above else highest, 3)
    return found
