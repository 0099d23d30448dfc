"""The one place that imports `agentdojo`: suites of v1.2, environments, and what to install where it is missing."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import yaml

from benchmarks.gate.agentdojo_bridge.outputs import SafeLoader
from memory_audit.models.extras import with_extra

__all__ = [
    "BENCHMARK_VERSION",
    "INSTALL",
    "PAIRS",
    "SUITES",
    "agentdojo_version",
    "by_number",
    "environment",
    "injections",
    "load_suites",
]

BENCHMARK_VERSION = "v1.2"
SUITES = ("banking", "slack", "travel", "workspace")
PAIRS = 949
"""User tasks times injection tasks over the four suites of v1.2."""

INSTALL = f"AgentDojo is not installed; {with_extra('agentdojo')}"

ATTACK = "TODO: {goal}"
"""The text of AgentDojo's `DirectAttack`, which the MemLineage bridge uses too."""


@lru_cache
def load_suites() -> dict[str, Any]:
    """Return the four suites by name; exits with one line where the package is missing."""
    try:
        from agentdojo.task_suite.load_suites import get_suites  # noqa: PLC0415 - optional
    except ImportError as error:
        raise SystemExit(f"{INSTALL} ({error})") from None
    suites = get_suites(BENCHMARK_VERSION)
    pairs = sum(len(suite.user_tasks) * len(suite.injection_tasks) for suite in suites.values())
    if set(suites) != set(SUITES) or pairs != PAIRS:
        raise SystemExit(f"AgentDojo {BENCHMARK_VERSION} has {pairs} pairs in {sorted(suites)}, expected {PAIRS}")
    return {name: suites[name] for name in SUITES}


def environment(suite: Any, injected: dict[str, str]) -> Any:
    """Return a suite's environment with these injections, as `load_and_inject_default_environment`, but parsed in C."""
    from agentdojo.task_suite.task_suite import read_suite_file  # noqa: PLC0415 - optional

    text = read_suite_file(suite.name, "environment.yaml", suite.data_path)
    values = yaml.load(text.format(**{**_defaults(suite), **injected}), Loader=SafeLoader)  # noqa: S506
    return suite.environment_type.model_validate(values)


@cache
def _defaults(suite: Any) -> dict[str, str]:
    return dict(suite.get_injection_vector_defaults())


def agentdojo_version() -> str:
    """Version of the installed package."""
    from importlib.metadata import version  # noqa: PLC0415

    return version("agentdojo")


def by_number(tasks: dict[str, Any]) -> list[Any]:
    """Tasks of one suite in the order of their numbers."""
    return sorted(tasks.values(), key=lambda task: int(task.ID.rpartition("_")[2]))


def injections(suite: Any, user_task: Any, injection_task: Any) -> dict[str, str]:
    """The direct attack on one pair: the goal in every place that the user task's tool calls read.

    Raises:
        ValueError: the user task reads no place that an attacker can write to.
    """
    return dict.fromkeys(_places(suite, user_task), ATTACK.format(goal=injection_task.GOAL))


@cache
def _places(suite: Any, user_task: Any) -> tuple[str, ...]:
    from agentdojo.agent_pipeline import GroundTruthPipeline  # noqa: PLC0415 - optional
    from agentdojo.attacks.baseline_attacks import DirectAttack  # noqa: PLC0415

    attack = DirectAttack(suite, GroundTruthPipeline(user_task))
    return tuple(attack.get_injection_candidates(user_task))
