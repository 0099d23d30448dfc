"""Hazards by entailment: how far a record's sentences entail plain statements of a hazard ("A check is left out.").

A second instrument beside the backbone's yes or no, and a probe on activations
(`memory_audit.models.activations.hazard_probe`) is the third: their errors are not the same
(`training/hazard_reading.py`). A label's log-odds are a logistic curve over all: the backbone's margin, the probe's
log-odds, and for each statement the log of its largest entailment probability over the record's sentences and the
whole.

No weight is negative, so a sentence that is added to a record takes nothing away from what its others entail (the probe
averages over windows: there it can). The statements are fixed; a record is only ever the premise.
Curves belong to a taxonomy and were fitted with one NLI model and one backbone: with others, calibrate.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.text.chunks import PIECE_BYTES, pieces
from memory_audit.models.calibration import read_record, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.models.activations.hazard_probe import Probe
    from memory_audit.models.protocols import EntailmentModel

__all__ = [
    "CURVES_FILE", "HazardStatements", "LabelCurve", "packaged_curves", "parse_curves", "statement_evidence", "units",
]  # fmt: skip

CURVES_FILE = "hazard_statements.json"

FLOOR = 1e-3
"""Added to probabilities before the logarithm: below it an entailment model says nothing."""

MAX_UNITS = 24
"""Sentences of a record that are premises. Of more, neighbours are joined, so that none is left out; what is then too
long for the NLI model to read whole is cut again."""

_SENTENCE_END = re.compile(r"(?<=[.!?;\n])\s+|(?<=[。！？؟।])\s*")
"""Scripts that put no white space between sentences end them by marks of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCurve:
    """The logistic curve of one label."""

    statements: tuple[str, ...]
    weights: tuple[float, ...]
    """Per statement, on log(entailment + FLOOR); none is negative."""

    margin_slope: float
    """On the backbone's margin in nats; not negative."""

    bias: float
    probe_slope: float = 0.0
    """On the probe's log-odds; not negative."""

    def log_odds(self, evidence: Sequence[float], margin_nats: float, probed_nats: float = 0.0) -> float:
        """Return the label's log-odds in nats.

        Args:
            evidence: Per statement, from `statement_evidence`.
            margin_nats: The backbone's log p(yes) - log p(no).
            probed_nats: The probe's log-odds.
        """
        entailed = math.fsum(weight * value for weight, value in zip(self.weights, evidence, strict=True))
        return self.bias + entailed + self.margin_slope * margin_nats + self.probe_slope * probed_nats


class HazardStatements:
    """Adds entailment and a probe to a backbone's margins.

    Args:
        model: The NLI model; called in a thread, one call at a time.
        curves: Per label of the taxonomy they belong to, in its order.
        taxonomy: Its digest.
        probe: Called likewise; None reads nothing from activations.

    Raises:
        UsageError: a probe of other labels.
    """

    def __init__(
        self,
        model: EntailmentModel,
        curves: Mapping[str, LabelCurve],
        taxonomy: str,
        probe: Probe | None = None,
    ) -> None:
        self.model_id = model.model_id if probe is None else f"{model.model_id} + {probe.model_id}"
        self.taxonomy = taxonomy
        self._model, self._curves, self._probe = model, dict(curves), probe
        if probe is not None and probe.labels != tuple(curves):
            raise UsageError(f"{probe.model_id}: labels {', '.join(probe.labels):.200} are not those of the curves")
        self._one_at_a_time = asyncio.Lock()
        parts = json.dumps([self.model_id, taxonomy, {name: repr(curve) for name, curve in sorted(curves.items())}])
        self.digest = hashlib.sha256(parts.encode()).hexdigest()
        """Of all that the log-odds depend on besides the text and the margins."""

    async def log_odds(self, text: str, margins: Mapping[str, float]) -> dict[str, float]:
        """Return each label's log-odds in nats, from its margin, what the text entails, and the probe.

        Raises:
            ModelError: a model failed, or answered with something that is no number.
        """
        statements = [statement for curve in self._curves.values() for statement in curve.statements]
        async with self._one_at_a_time:
            evidence = iter(await asyncio.to_thread(statement_evidence, self._model, text, statements))
            probed = await asyncio.to_thread(self._probed, text)
        found = {
            name: curve.log_odds([float(next(evidence)) for _ in curve.statements], margins[name], nats)
            for (name, curve), nats in zip(self._curves.items(), probed, strict=True)
        }
        if not all(map(math.isfinite, found.values())):
            raise ModelError(f"{self.model_id}: log-odds of a hazard are no number; the text has no signature")
        return found

    def _probed(self, text: str) -> list[float]:
        if self._probe is None:
            return [0.0] * len(self._curves)
        return [float(nats) for nats in self._probe.log_odds([text])[0]]


def packaged_curves(taxonomy: Taxonomy) -> dict[str, LabelCurve] | None:
    """Return the curves that come with the package; None where they are of another taxonomy."""
    return parse_curves(read_record(CURVES_FILE), taxonomy)


def parse_curves(value: Mapping[str, object], taxonomy: Taxonomy) -> dict[str, LabelCurve] | None:
    """Read what `training.hazard_reading` wrote; None where it is of another taxonomy.

    Raises:
        UsageError: labels that the taxonomy has not, what is no curve, or a negative weight.
    """
    if value.get("taxonomy") != taxonomy.digest:
        return None
    labels = value.get("labels")
    if not isinstance(labels, dict) or set(labels) != set(taxonomy.names):
        raise UsageError("hazard statements: their labels are not the taxonomy's")
    curves = {name: record_of(LabelCurve, labels[name], f"hazard statements: {name}") for name in taxonomy.names}
    if any(min((*curve.weights, curve.margin_slope, curve.probe_slope)) < 0 for curve in curves.values()):
        raise UsageError("hazard statements: a weight is negative, so an added sentence could take evidence away")
    return curves


def units(text: str) -> tuple[str, ...]:
    """Return the premises of a record: its sentences, and the whole.

    Those longer than PIECE_BYTES, neighbours that were joined and sentences without an end, are cut into pieces that
    overlap. The whole stays as it is: a model that reads only its beginning has read all of it in the others.
    """
    found = [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]
    if len(found) > MAX_UNITS:
        step = -(-len(found) // MAX_UNITS)
        found = [" ".join(found[start : start + step]) for start in range(0, len(found), step)]
    return tuple(dict.fromkeys([*(part for unit in found for part in _short(unit)), text]))


def _short(unit: str) -> tuple[str, ...]:
    return (unit,) if len(unit.encode(errors="replace")) <= PIECE_BYTES else pieces(unit)


def statement_evidence(model: EntailmentModel, text: str, statements: Sequence[str]) -> NDArray[np.float32]:
    """Return log(largest entailment + FLOOR) of each statement over the record's units, shape (statements,)."""
    premises = units(text)
    pairs = [(premise, statement) for premise in premises for statement in statements]
    entailed = model.probabilities(pairs)[:, 2].reshape(len(premises), len(statements))
    return np.asarray(np.log(entailed.max(axis=0) + FLOOR), np.float32)
