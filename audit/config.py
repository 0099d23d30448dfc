"""The configuration of one audit: one record, one set of defaults, the same names in `memaudit.yaml` and on the CLI.

Defaults are resolved here and nowhere else. The digest of a configuration names what a run's results depend on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping  # noqa: TC003 - `get_type_hints` reads the record's annotations
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from memory_audit.attribution.replays.agents import AGENTS, load_agent
from memory_audit.attribution.replays.harm import SCORERS, load_harm
from memory_audit.errors import UsageError
from memory_audit.formats import strict_yaml
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.setting_types import describe_type
from memory_audit.lineage.trust import parse_trust_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["AuditConfig", "load_config", "parse_options"]

MAX_CONFIG_BYTES = 1 << 20

MAX_SAMPLES = 100
"""Of one question: what a hundred replays do not tell is no evidence."""

MAX_COUNT = 10_000_000
"""Of memories retrieved, compared or removed, and of replays: more is a slip of the finger."""

MAX_SEED = (1 << 31) - 1 - MAX_SAMPLES
"""faiss takes 31 bits, and each sample of a question has a seed of its own after the first."""

_NOT_COUNTED = frozenset({"backbone_key_env", "calibration", "max_run_replays"})
"""What makes a run no other one: of a calibration the content counts (`memory_audit.request`), and not the place; and a
run whose budget is spent is continued with a larger one."""

MAX_ALL_PAIRS = 1_500
"""Entries of a store whose every pair may be compared: 1.1 million pairs are already hours of NLI."""

Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
AtMost = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Level = Annotated[float, Meta(ge=0.0001, le=0.5)]
Nats = Annotated[float, Meta(ge=0, le=sys.float_info.max, description="nats, 0 or more")]
Pattern = Annotated[str, Meta(min_length=1, description="a pattern that is not empty")]
Name = Annotated[str, Meta(pattern=r"\A[^\0]+\Z", description="a name without NUL")]


def _default_agent() -> dict[str, object]:
    return {
        "kind": "few-shot",
        "system": "You are a helpful assistant. Answer in the manner of the earlier turns.",
        "max_tokens": 160,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """Everything that an audit's result depends on besides the store and the events, and where the server's key is."""

    agent: Mapping[str, object] = field(default_factory=_default_agent)
    """Kind (few-shot, template, or package.module:Class) and fields of the agent to replay."""

    harm: Mapping[str, object] = field(default_factory=dict)
    """Kind (answer-label, regex, judge, known-answer, or package.module:name) and fields of the harm scorer."""

    retrieval: Literal["dense", "levenshtein"] = "dense"
    """How memories are found: by the cosine of embeddings, or by the distance of the requests' letters."""

    k: Count = 5
    """Memories the agent retrieves."""

    attribution: Literal["set", "loo"] = "set"
    """`set` searches harmful sets with graded influence; `loo` is the paper's plain leave-one-out CMIS."""

    attribution_nats: Nats = 2.0
    """Evidence from which the harm is attributed to a memory: it alone raises the log-odds of the harm by so much (see
    memory_audit.attribution.search.search)."""

    consistent_extra_nats: Nats = 0.5
    """How much more of it a memory needs that is more consistent with its neighbours than the store's median."""

    calibration: Name | None = None
    """File of `memaudit calibrate`: with it what a memory must exceed is what clean incidents show, and not
    `attribution_nats`; every finding has its p."""

    significance: Level = 0.02
    """With a calibration, the share of clean incidents in which a benign memory may be blamed: 0.02 needs 49 of them
    (see memory_audit.attribution.calibration)."""

    samples: Annotated[int, Meta(ge=0, le=MAX_SAMPLES)] = 8
    """Sampled replays per question where the model's odds cannot be had (a server without log-probabilities, an answer
    without a place to ask at); 0 takes one harm score there."""

    alpha: Share = 0.6
    """Weight of influence (CMIS) against inconsistency (CAS) in the score (DS, eq. 10)."""

    graph: Literal["local", "full"] = "local"
    """How much of a store is compared: `local` the neighbourhoods of memories that a search examines, once harm was
    reproduced, and those of a sample; `full` every memory's, as in the paper. `loo` and a budget rank all memories, and
    take the full graph."""

    neighbours: Count = 10
    """Nearest neighbours of each entry in the consistency graph."""

    all_pairs_below: Annotated[int, Meta(ge=0, le=MAX_ALL_PAIRS)] = 0
    """Stores of up to this many entries get every pair in the consistency graph, exactly; 0 never. At most 1,500."""

    budget: AtMost | None = None
    """Remove exactly this many entries of the ranking; None removes as many as end the harm on replay."""

    max_replays: AtMost | None = None
    """Most replays of each tenant's search, each sample one; what is left out is listed. The final check of the removed
    set and of probes comes on top, and with `loo` the choice of that set."""

    max_run_replays: Count | None = None
    """Most replays of the whole run, each sample one, final checks included; what is left out is named. The same run is
    continued with a larger one (see memory_audit.jobs.run.groups.budget). Not with `loo`."""

    probe_pattern: Pattern | None = None
    """Regular expression whose last match (group 1 if there is one) is a probe's answer; None compares whole texts."""

    hazards: Literal["read", "off"] = "read"
    """Whether the backbone is asked for the hazards of removed entries (see memory_audit.models.hazards.extraction);
    `off` asks nothing, and tombstones then keep no paraphrase out."""

    taxonomy: Name | None = None
    """Taxonomy file of those hazards; None is the packaged one."""

    descendants: Literal["remove", "quarantine", "report"] = "remove"
    """What becomes of memories that draw τ or more on removed ones, over edges that their writers signed. Laundered
    poison that stays is used again and no longer looks like what was found; a removal is shown before it is made, stays
    in the log, and its price in probe answers is measured. With a budget, at most quarantined."""

    tau: Share = 0.2
    """Share from which a memory derives from removed or untrusted ones, over one strong edge or added up: an equal
    share of five retrieved memories is still enough."""

    trust: Mapping[str, object] = field(default_factory=dict)
    """Labels of the report: sources, principals, except_principals, unattributed, propagation, as in a gate policy."""

    seed: Annotated[int, Meta(ge=0, le=MAX_SEED)] = 0
    """Seed of sampled replays."""

    backbone: Name = "packaged"
    """Model that replays: packaged, a folder or Hugging Face id, or openai:URL#MODEL."""

    backbone_key_env: Name | None = None
    """NAME of the environment variable that holds the key of the backbone's server. No result depends on it, and no run
    is another one for it."""

    nli: Name = "packaged"
    """Model that compares memories: packaged, or a folder or Hugging Face id."""

    embedder: Name = "packaged"
    """Model of retrieval and of semantic keys: packaged, or a sentence-transformers folder or id."""

    def __post_init__(self) -> None:
        for name, hint in _option_types().items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, msgspec.convert(value, hint, strict=True))
            except msgspec.ValidationError:
                raise _SettingError(name, f"{name} is {value!r:.60}, expected {describe_type(hint)}") from None
        if self.probe_pattern is not None:
            try:
                re.compile(self.probe_pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise _SettingError(
                    "probe_pattern", f"probe_pattern {self.probe_pattern!r:.80} is not a regular expression: {error}"
                ) from None
        if self.max_run_replays is not None and self.attribution == "loo":
            raise _SettingError("max_run_replays", "max_run_replays: `loo` has no bound; use max_replays")
        self._check_blocks()

    def _check_blocks(self) -> None:
        """Refuse what agent, harm scorer and trust could not be built of; no code of the user's is run here."""
        blocks: list[tuple[str, Callable[[], object]]] = []
        for name, known, load in (("agent", AGENTS, load_agent), ("harm", SCORERS, load_harm)):
            settings = getattr(self, name)
            kind = str(settings.get("kind"))
            if (settings or name == "agent") and (kind in known or ":" not in kind):
                blocks.append((name, partial(load, settings)))
        blocks.append(("trust", partial(parse_trust_rules, self.trust, "trust")))
        for name, build in blocks:
            try:
                build()
            except UsageError as error:
                raise _SettingError(name, str(error)) from None

    @property
    def whole_graph(self) -> bool:
        """Whether every memory is compared: asked for, or since all of them are ranked."""
        return self.graph == "full" or self.attribution == "loo" or self.budget is not None

    def canonical(self) -> dict[str, object]:
        """Return the configuration as plain JSON values, sorted by name, without what makes a run no other one."""
        counted = {name: value for name, value in dataclasses.asdict(self).items() if name not in _NOT_COUNTED}
        return dict(sorted(json.loads(json.dumps(counted, default=dict)).items()))

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical configuration."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def load_config(path: Path | None, overrides: Mapping[str, object]) -> AuditConfig:
    """Read `memaudit.yaml` and let flags win.

    Args:
        path: The file, or None for defaults and flags only.
        overrides: Names and values given on the command line; None values are not given.

    Raises:
        UsageError: the file cannot be read, is not a YAML mapping, or names an unknown option or a wrong type.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    in_file = {} if path is None else parse_options(read_at_most(path, MAX_CONFIG_BYTES), str(path))
    known = _option_types()

    def where(name: str) -> str:
        return "command line" if path is None or name in given else str(path)

    for name in in_file | given:
        if name not in known:
            raise UsageError(f"{where(name)}: unknown option {name!r:.60}; known are {', '.join(sorted(known))}")
    try:
        return AuditConfig(**(in_file | given))  # type: ignore[arg-type]
    except _SettingError as error:
        raise UsageError(f"{where(error.setting)}: {error}") from None


class _SettingError(UsageError):
    """A value that a setting cannot have."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


@cache
def _option_types() -> dict[str, Any]:
    return get_type_hints(AuditConfig, include_extras=True)


def parse_options(data: bytes, where: str) -> dict[str, object]:
    """Read option names and values from YAML; `load_config` checks them.

    Raises:
        UsageError: names `where`; not a YAML mapping.
    """
    values = strict_yaml.decode(data, max_bytes=MAX_CONFIG_BYTES, where=where)
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise UsageError(f"{where}: expected a mapping of option names to values")
    options = {name.replace("-", "_"): value for name, value in values.items()}
    if len(options) != len(values):
        raise UsageError(f"{where}: an option is there twice, with a hyphen and with an underscore")
    return options
