"""How sure a finding is: p of events and memories by a calibration, and the words for it in every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.calibration import incidents_needed
from memory_audit.attribution.search.search import SetSearch
from memory_audit.counted import counted
from memory_audit.result import Calibrated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.attribution.leave_one_out import LeaveOneOut
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.settings import SearchSettings
    from memory_audit.calibration_file import CalibrationFile

__all__ = ["calibrated", "confidence_note", "p_of_event", "p_of_memories", "p_text", "recorded_note"]

NOT_CALIBRATED = "not calibrated for this model"

RECORDED_PREFIX = "recorded:"
"""Begins the id of a model whose answers were recorded."""


def p_of_event(search: SetSearch | LeaveOneOut, state: EventState) -> float | None:
    """How likely a clean incident shows as much evidence against any memory as this event; None where nothing says."""
    if not isinstance(search, SetSearch) or search.calibration is None:
        return None
    evidence = _evidence(search, state)
    return search.calibration.p_value(max(evidence.values())) if evidence else None


def p_of_memories(search: SetSearch | LeaveOneOut) -> Mapping[str, float]:
    """Return p by entry id, of the strongest event of each memory that was measured.

    It counts as often as there are unlike queries at which the memory was tried.
    """
    if not isinstance(search, SetSearch) or search.calibration is None:
        return {}
    evidence: dict[str, dict[str, float]] = {}
    for state in search.states.values():
        for name, nats in _evidence(search, state).items():
            of_queries = evidence.setdefault(name, {})
            of_queries[state.event.query] = max(nats, of_queries.get(state.event.query, nats))
    return {
        name: search.calibration.p_value(max(of_queries.values()), len(of_queries))
        for name, of_queries in sorted(evidence.items())
    }


def _evidence(search: SetSearch, state: EventState) -> dict[str, float]:
    """Return what an event says against each memory that it tried; of those screened out in groups it is nothing."""
    measured = (name for name, influence in state.influences.items() if influence.sufficiency_nats is not None)
    tried = dict.fromkeys(state.screening.cleared, 0.0)
    return tried | {name: search.rule.evidence_nats(state, name) for name in measured}


def calibrated(file: CalibrationFile | None, settings: SearchSettings) -> Calibrated | None:
    """Say what the evidence of a run is held against; None where it has no calibration."""
    if file is None:
        return None
    return Calibrated(
        incidents=len(file.incidents), significance=settings.significance, made_ms=file.made_ms,
        threshold_nats=settings.threshold_nats() if settings.is_calibrated else None,
    )  # fmt: skip


def confidence_note(known: Calibrated | None) -> str:
    """Say in a line what p and threshold of a run rest on."""
    if known is None:
        return f"{NOT_CALIBRATED}: memaudit calibrate tells how sure its findings are"
    incidents = counted(known.incidents, "clean incident")
    if known.threshold_nats is None:
        needed = incidents_needed(known.significance)
        return f"{NOT_CALIBRATED}: {incidents}, and {_percent(known)} needs {needed}; the fixed threshold holds"
    return (
        f"calibrated on {incidents}: evidence above {known.threshold_nats:.1f} nats names a memory, which at most "
        f"{_percent(known)} of incidents without a cause show"
    )


def _percent(known: Calibrated) -> str:
    return f"{100 * known.significance:.3g} %"


def p_text(p_value: float | None) -> str:
    """Return a p for a table; `–` where there is none."""
    return "–" if p_value is None else f"{p_value:.3g}"


def recorded_note(models: Mapping[str, str]) -> str:
    """Say that models answered from a recording where one did; else nothing. `models` is role to model id."""
    if not any(name.startswith(RECORDED_PREFIX) for name in models.values()):
        return ""
    return "recorded: the models' answers are those of an earlier run, and no model ran here"
