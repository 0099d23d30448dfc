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
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert
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
MAX_THRESHOLD_NATS = 50

Text = Annotated[str, Meta(pattern=r"\S", description="text, not empty")]
Nats = Annotated[float, Meta(ge=-MAX_THRESHOLD_NATS, le=MAX_THRESHOLD_NATS)]


class HazardLabel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One unsafe behaviour that a memory may ask for."""

    name: Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_]{0,63}\Z", description="a lower-case word with digits and _")]
    definition: Text
    """Completes "The record …"."""

    positive: Text
    """A record that has the label."""

    negative: Text
    """A record on the same matter that has not."""

    threshold_nats: Nats = DEFAULT_THRESHOLD_NATS

    def __post_init__(self) -> None:
        for part in ("definition", "positive", "negative"):
            text = getattr(self, part)
            if len(text.encode(errors="replace")) > MAX_LABEL_TEXT_BYTES:
                raise UsageError(f"{part} of {self.name} has more than {MAX_LABEL_TEXT_BYTES} bytes")
            if not text.isprintable():
                raise UsageError(f"{part} of {self.name} holds a line break or a hidden character")


class Taxonomy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The labels that a store's signatures are made of.

    Raises:
        UsageError: a rule of the module's docstring is broken.
    """

    name: Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9-]{0,63}\Z", description="a lower-case word with digits and -")]
    version: Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
    labels: Annotated[tuple[HazardLabel, ...], Meta(min_length=1, max_length=MAX_LABELS)]

    def __post_init__(self) -> None:
        for number, name in enumerate(self.names):
            if name in self.names[:number]:
                raise UsageError(f"label {name!r} is there twice")

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
    return convert(value, Taxonomy, where)
