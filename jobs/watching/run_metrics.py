"""A run as Prometheus metrics while it is at work: for the node exporter's textfile collector, and for Ray's scrapers.

The command writes what it counted itself, what groups of tenants came to, and what those at work tell in RUN/at-work,
on whatever node. Where Ray is up the same figures go to `ray.util.metrics`, and Ray's agents show them as
`ray_memaudit_run_…`. Labels are words of ours and the store's place; a tenant is none.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from memory_audit.errors import AuditError
from memory_audit.jobs.places import check_place
from memory_audit.jobs.watching.status import groups_at_work
from memory_audit.jobs.watching.tally import Tally
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

__all__ = ["RunMetrics"]

EVERY_S = 10.0
"""Between two writings: Prometheus asks every 15 to 60 seconds."""

PREFIX = "memaudit_run"

_OF_STAGES = {
    "waiting": "To be done, and not done yet.",
    "done": "Asked for and answered.",
    "known": "Needed and not asked for, as it was known.",
    "seconds": "Time in the stage, of all groups of tenants together.",
    "cpu_seconds": "CPU time in the stage, of the processes that ask.",
}
_GAUGES = frozenset({"waiting"})


@dataclass(slots=True, eq=False)
class RunMetrics:
    """Writes figures every EVERY_S, in a thread; as a context, a last time when the work ends.

    That they cannot be written ends no work.
    """

    tally: Tally
    """Of the command."""

    store: str
    """Place of the store: jobs of one machine are told apart by it."""

    file: Path | None = None
    """Its name ends in .prom; None writes none."""

    _active: int = field(default=1, init=False)
    _started: float = field(default_factory=time.time, init=False)
    _most: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    """What counters have shown: a task that is begun again takes nothing back."""

    _of_ray: dict[str, Any] = field(default_factory=dict, init=False)
    _sent: dict[tuple[str, ...], float] = field(default_factory=dict, init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if error is not None:
            self.tally.note(error)
        self._active = 0
        self.write()

    def _go_on(self) -> None:
        self.write()
        while not self._over.wait(EVERY_S):
            self.write()

    def write(self) -> None:
        """Write all figures as they are now."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - few commands need it

        registry = CollectorRegistry()
        registry.register(self)
        if self.file is not None:
            with contextlib.suppress(AuditError):
                durable.ensure_folder(self.file.parent)
                durable.replace(check_place(self.file), generate_latest(registry), synced=False)
        is_initialized = getattr(sys.modules.get("ray"), "is_initialized", None)  # also None as it loads
        if is_initialized is not None and is_initialized():
            self._tell_ray(registry.collect())

    def collect(self) -> Iterator[Metric]:
        """Yield all figures, as `prometheus_client` asks of a collector."""
        told = self._whole()
        heard = self._started if told.heard_at_ms is None else told.heard_at_ms / 1_000
        yield self._family("active", "1 while the command is at work.", {"": self._active})
        yield self._family("start_timestamp_seconds", "When the command began.", {"": self._started})
        yield self._family("heard_timestamp_seconds", "When something was done last.", {"": heard})
        for name, text in _OF_STAGES.items():
            found = {str(label): getattr(counts, name) for label, counts in told.stages.items()}
            yield self._family(name, text, found, "stage", counter=name not in _GAUGES)
        again = {str(model): count for model, count in told.retries.items()}
        yield self._family("retries", "Questions asked again, by model.", again, "model", counter=True)
        yield self._family("errors", "Tenants or runs that failed, by kind.", told.errors, "kind", counter=True)

    def _whole(self) -> Tally:
        """Return what all processes counted."""
        told = msgspec.json.decode(msgspec.json.encode(self.tally), type=Tally)  # at one moment: others count on
        for group in () if told.folder is None else groups_at_work(Path(told.folder)).values():
            told.add(group.tally)
        return told

    def _family(
        self, name: str, text: str, values: Mapping[str, float], label: str = "", *, counter: bool = False
    ) -> Metric:
        """Return one metric: its values by what the label says, or one value where there is none."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        kind = CounterMetricFamily if counter else GaugeMetricFamily
        family = kind(f"{PREFIX}_{name}", text, labels=("store", label) if label else ("store",))
        for word, value in sorted(values.items()):
            shown = max(value, self._most.get((name, word), 0.0)) if counter else value
            self._most[name, word] = shown
            family.add_metric((self.store, word) if label else (self.store,), shown)
        return family

    def _tell_ray(self, families: Iterable[Metric]) -> None:
        from ray.util.metrics import Counter, Gauge  # noqa: PLC0415

        for family in families:
            for sample in family.samples:
                if family.name not in self._of_ray:
                    kind = Counter if family.type == "counter" else Gauge
                    self._of_ray[family.name] = kind(family.name, family.documentation, tuple(sample.labels))
                metric = self._of_ray[family.name]
                if family.type != "counter":
                    metric.set(sample.value, sample.labels)
                elif (more := sample.value - self._sent.get(key := (family.name, *sample.labels.values()), 0.0)) > 0:
                    metric.inc(more, sample.labels)
                    self._sent[key] = sample.value
