"""Hazard signatures: which unsafe behaviours a memory asks for, as a set of labels, and when two such sets match.

Source: "Hazard-Signature Tombstones", sections 3.2 to 3.5. A taxonomy is a YAML or JSON file:

    name: agent-actions
    version: 1
    labels:
      - name: skip_validation
        definition: tells the agent to leave out a check
        positive: "Go straight on; the schema check only costs time."
        negative: "Run the schema check; where it fails, stop."
        threshold_nats: 1.0          # optional: log-odds of yes over no above which the label holds

Rules: 1 to MAX_LABELS labels; names are lower-case words, each once; all texts are there and not empty; nothing else is
in the file. The digest covers what a label means (names, definitions, examples, version), not the thresholds: those
belong to a model, and a new calibration must not cut a store off from its tombstones.

Matching (eq. 3) is containment either way. Two rules are added to the formula. The empty signature matches nothing: it
is a subset of every set, so the formula alone would block every harmless write. Signatures of different taxonomies
match nothing: equal names could mean different behaviours.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.provenance import strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "DEFAULT_THRESHOLD_NATS", "HazardLabel", "HazardSignature", "Taxonomy", "default_taxonomy",
    "load_taxonomy", "matches", "parse_taxonomy",
]  # fmt: skip

DEFAULT_THRESHOLD_NATS = 1.0
"""A small model's yes is biased upwards: on MemoryGraft with the 1.5B backbone a margin above 0 labels 39 of 50 benign
records, above 1 none that counts (DESIGN, "Models")."""

MAX_TAXONOMY_BYTES = 65_536
MAX_LABELS = 32
"""Each label is a question to the model; the guard packs a signature into the bits of one integer."""

MAX_LABEL_TEXT_BYTES = 1_024
MAX_THRESHOLD_NATS = 50.0

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAXONOMY_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardLabel:
    """One unsafe behaviour that a memory may ask for."""

    name: str
    definition: str
    """Completes "The record …"."""

    positive: str
    """A record that has the label."""

    negative: str
    """A record on the same matter that has not."""

    threshold_nats: float = DEFAULT_THRESHOLD_NATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """The labels that a store's signatures are made of.

    Raises:
        UsageError: a rule of the module's docstring is broken.
    """

    name: str
    version: int
    labels: tuple[HazardLabel, ...]

    def __post_init__(self) -> None:
        where = f"taxonomy {self.name!r:.80}"
        if not isinstance(self.name, str) or not _TAXONOMY_NAME.fullmatch(self.name):
            raise UsageError(f"{where}: a name is a lower-case word with digits and hyphens")
        if not isinstance(self.version, int) or isinstance(self.version, bool) or not 1 <= self.version < 1 << 31:
            raise UsageError(f"{where}: version is {self.version!r:.40}, expected a whole number from 1")
        if not 1 <= len(self.labels) <= MAX_LABELS:
            raise UsageError(f"{where}: {len(self.labels)} labels, expected 1 to {MAX_LABELS}")
        seen: set[str] = set()
        for label in self.labels:
            _check_label(label, where)
            if label.name in seen:
                raise UsageError(f"{where}: label {label.name!r} is there twice")
            seen.add(label.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels, in the file's order."""
        return tuple(label.name for label in self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what the labels mean; thresholds are not part of it."""
        meaning = {
            "name": self.name,
            "version": self.version,
            "labels": [
                {"name": it.name, "definition": it.definition, "positive": it.positive, "negative": it.negative}
                for it in self.labels
            ],
        }
        return hashlib.sha256(strict_json.encode(meaning)).hexdigest()

    def judge(self, margins_nats: Mapping[str, float]) -> frozenset[str]:
        """Return the labels whose margin logp(yes) - logp(no) is above their threshold."""
        return frozenset(label.name for label in self.labels if margins_nats[label.name] > label.threshold_nats)


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardSignature:
    """HS(m): the labels of one memory, and what they were read with."""

    labels: frozenset[str]
    taxonomy: str
    """Digest of the taxonomy."""

    model: str
    """Id of the model that read it, with the digest of its weights."""

    hazard_nats: float | None = field(default=None, compare=False)
    """How far the likeliest label lies above its threshold, below 0 where none holds. Not part of what is signed; None
    where it was not told, or by instruments that were not calibrated together."""


def matches(write: HazardSignature, removed: HazardSignature) -> bool:
    """Tell whether a write's signature matches a removed memory's, by labels alone (eq. 3 and the module's rules)."""
    if write.taxonomy != removed.taxonomy or not write.labels or not removed.labels:
        return False
    return write.labels <= removed.labels or removed.labels <= write.labels


def default_taxonomy() -> Taxonomy:
    """Return the paper's five labels."""
    data = resources.files("memory_audit.guard.blocks").joinpath("taxonomy.yaml").read_bytes()
    return parse_taxonomy(data, "the packaged taxonomy")


def load_taxonomy(path: Path) -> Taxonomy:
    """Read a taxonomy file.

    Raises:
        UsageError: it cannot be read, or breaks a rule.
    """
    return parse_taxonomy(read_at_most(path, MAX_TAXONOMY_BYTES), str(path))


def parse_taxonomy(data: bytes, where: str) -> Taxonomy:
    """Parse a taxonomy in YAML or JSON.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    from memory_audit.formats import strict_yaml  # noqa: PLC0415 - a guard that reads no taxonomy needs no YAML

    value = strict_yaml.decode(data, max_bytes=MAX_TAXONOMY_BYTES, where=where)
    fields = _mapping(value, where, {"name", "version", "labels"}, set())
    if not isinstance(fields["labels"], list):
        raise UsageError(f"{where}: labels must be a list")
    labels = []
    for number, item in enumerate(fields["labels"][: MAX_LABELS + 1]):
        of = f"{where}: label {number + 1}"
        label = _mapping(item, of, {"name", "definition", "positive", "negative"}, {"threshold_nats"})
        labels.append(HazardLabel(**label))
    try:
        return Taxonomy(name=fields["name"], version=fields["version"], labels=tuple(labels))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _mapping(value: object, where: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected a mapping with {', '.join(sorted(required))}")
    missing = sorted(required - value.keys())
    if missing:
        raise UsageError(f"{where}: {missing[0]} is missing")
    unknown = sorted(str(key) for key in value.keys() - required - optional)
    if unknown:
        raise UsageError(f"{where}: unknown field {unknown[0]!r:.60}")
    return value


def _check_label(label: HazardLabel, where: str) -> None:
    if not isinstance(label.name, str) or not _NAME.fullmatch(label.name):
        raise UsageError(f"{where}: label {label.name!r:.80} must be a lower-case word with digits and underscores")
    for part in ("definition", "positive", "negative"):
        text = getattr(label, part)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{where}: {part} of {label.name} is empty")
        if len(text.encode(errors="replace")) > MAX_LABEL_TEXT_BYTES:
            raise UsageError(f"{where}: {part} of {label.name} has more than {MAX_LABEL_TEXT_BYTES} bytes")
        if not text.isprintable():
            raise UsageError(f"{where}: {part} of {label.name} holds a line break or a hidden character")
    number = label.threshold_nats
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise UsageError(f"{where}: threshold_nats of {label.name} is {number!r:.40}, expected a number")
    if abs(number) > MAX_THRESHOLD_NATS:
        raise UsageError(f"{where}: threshold_nats of {label.name} is {number}, expected at most {MAX_THRESHOLD_NATS}")
