"""A plan: what an audit will take, tenant by tenant, and of which request that is said.

    {"format": "memaudit plan v1", "of": {"snapshot": "9f…", "events": "31…", "version": "0.1.0", …}, "budget": null,
     "machine": "node-3", "rates": {"nli": {"model": "packaged", "per_second": 31.9}, …},
     "total": {"tenant": "", "events": 4, "replays": {"least": 8, "typical": 64, "most": null}, …,
               "seconds": {"least": 21.5, "typical": 340.2, "most": null}},
     "tenants": [{"tenant": "acme", …}]}

It holds no text of a memory. `audit --plan` reads `of` alone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from memory_audit.errors import StalePlanError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert
from memory_audit.jobs.executors.rates import model_names, rates_of
from memory_audit.jobs.plan.estimate import Known, TenantEstimate, estimate
from memory_audit.jobs.run.groups.audit import of_whole_run
from memory_audit.jobs.run.groups.budget import by_service
from memory_audit.jobs.run.groups.plan import group_folders
from memory_audit.jobs.run.groups.run import one_line
from memory_audit.jobs.run.run_audit import model_specs
from memory_audit.jobs.run.run_files import EMBEDDING, ENTAILMENT, REPLAYS, read_identity, read_models, shards
from memory_audit.jobs.run.shards import parse_outcomes, parse_vectors, read_shard
from memory_audit.jobs.watching.progress import stage
from memory_audit.models.lazy import LazyEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.request import AuditRequest

__all__ = ["UNITS", "Plan", "check_plan", "make_plan"]

FORMAT = "memaudit plan v1"

MAX_BYTES = 256 << 20

UNITS = {"backbone": "replays", "embedder": "texts", "nli": "pairs"}
"""By role, what a model is asked: a field of `TenantEstimate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one audit will take."""

    of: Mapping[str, str]
    """What it was made for, by name: where any of it differs, the plan is stale."""

    budget: int | None
    """`max_run_replays`."""

    machine: str
    models: Mapping[str, str]
    """Role to the name of the model."""

    rates: Mapping[str, float | None]
    """By role, how much of its work was done in a second; None where no audit on this machine measured it."""

    tenants: tuple[TenantEstimate, ...]
    """Those with harmful events, in the order in which a budget serves them."""

    @property
    def total(self) -> TenantEstimate:
        """Of all tenants, within the budget."""
        total = TenantEstimate(tenant="")
        for item in self.tenants:
            added = {name: getattr(total, name) + getattr(item, name) for name in _ADDED}
            total = replace(total, **added)
        if self.budget is None:
            return total
        replays = total.replays.up_to(self.budget)
        return replace(
            total, replays=replays, tokens=replays.times(total.tokens.typical / max(total.replays.typical, 1))
        )

    def seconds(self, item: TenantEstimate) -> dict[str, float | None]:
        """Return how long the models of the machine take for it, by bound; None where that is not known."""
        return {bound: self._seconds(item, bound) for bound in ("least", "typical", "most")}

    def _seconds(self, item: TenantEstimate, bound: str) -> float | None:
        total = 0.0
        for role, name in UNITS.items():
            units, rate = getattr(getattr(item, name), bound), self.rates[role]
            if units is None or (units and not rate):
                return None
            total += units / rate if rate else 0.0
        return round(total, 1)

    def to_record(self) -> dict[str, Any]:
        """Return the plan as what JSON is made of."""

        def record(item: TenantEstimate) -> dict[str, Any]:
            return {**asdict(item), "seconds": self.seconds(item)}

        return {
            "format": FORMAT, "of": dict(self.of), "budget": self.budget, "machine": self.machine,
            "rates": {role: {"model": self.models[role], "per_second": rate} for role, rate in self.rates.items()},
            "total": record(self.total), "tenants": [record(item) for item in self.tenants],
        }  # fmt: skip


_ADDED = ("events", "memories", "replays", "tokens", "pairs", "texts")


def make_plan(request: AuditRequest, machine: str, version: str, *, earlier: Path | None = None) -> Plan:
    """Plan an audit; no model is loaded.

    Args:
        request: What would be asked.
        machine: Where it would be: a host, or the address of a cluster.
        version: Of this program.
        earlier: Folder of an earlier run, or of this one where it was begun: what it knows is taken off.

    Raises:
        UsageError: no run in that folder.
        AuditError: what would fail the whole audit.
    """
    known, tenants = Known() if earlier is None else _known(earlier, request), []
    with stage("reading memories", len(request.by_tenant)) as progress:
        for tenant in by_service(request.by_tenant):
            events = request.by_tenant[tenant]
            try:
                found = estimate(tenant, request.entries(tenant), events, request.config, known)
            except Exception as error:
                if of_whole_run(error):
                    raise
                found = TenantEstimate(tenant=tenant, events=len(events.harmful), failure=one_line(error))
            tenants.append(found)
            progress.advance()
    config = request.config
    return Plan(
        of=_made_for(request, version), budget=config.max_run_replays, machine=machine, models=model_names(config),
        rates=rates_of(config, machine), tenants=tuple(tenants),
    )  # fmt: skip


def check_plan(path: Path, request: AuditRequest, version: str) -> None:
    """Refuse an audit that a plan was not made for.

    Raises:
        StalePlanError: names what differs.
        UsageError: no plan.
    """
    raw = outside_json.decode(read_at_most(path, MAX_BYTES), str(path))
    plan, now = convert(raw, _Stated, str(path)), _made_for(request, version)
    if differs := sorted(name for name in plan.of.keys() | now.keys() if plan.of.get(name) != now.get(name)):
        raise StalePlanError(f"{path}: the plan was made for another {', '.join(differs)}; plan again")


class _Stated(msgspec.Struct):
    format: Literal["memaudit plan v1"]
    of: dict[str, str]


def _made_for(request: AuditRequest, version: str) -> dict[str, str]:
    return {**request.identity, "version": version, "budget of replays": str(request.config.max_run_replays)}


def _known(run: Path, request: AuditRequest) -> Known:
    """Return what a run knows, by the word of files that anybody may have written: for an estimate alone."""
    same = read_identity(run) == dict(request.identity)
    embedder = LazyEmbedder(model_specs(request.config)).model_id
    texts: set[str] = set()
    replays: dict[str, set[str]] = {}
    compared = False
    for folder in (run, *group_folders(run)):
        compared = compared or bool(shards(folder, ENTAILMENT))
        for shard in shards(folder, EMBEDDING) if read_models(folder).get("embedder") == embedder else ():
            with suppress(UsageError):
                texts.update(parse_vectors(read_shard(shard), str(shard))[0].to_pylist())
        for shard in shards(folder, REPLAYS) if same else ():
            with suppress(UsageError):
                for outcome in parse_outcomes(read_shard(shard), str(shard)):
                    replays.setdefault(outcome.event_id, set()).add(outcome.pair_id)
    counts = {event_id: len(pairs) for event_id, pairs in replays.items()}
    return Known(texts=frozenset(texts), replays=counts, compared=compared)
