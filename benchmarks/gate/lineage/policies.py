"""The three gate policies of the harness: one file, and its two stricter readings."""

from __future__ import annotations

from importlib import resources
from types import MappingProxyType
from typing import Literal

import msgspec

from memory_audit.gate.gate_policy import GatePolicy, ToolRule, parse_gate_policy

__all__ = ["DEFAULT", "PAPER", "Mode", "gate_policy"]

Mode = Literal["coarse", "deny", "repair"]

DEFAULT: dict[str, str] = {}
PAPER = {"propagation": "strongest", "unattributed": "trusted"}
"""Max of strong edges, by an agent that records all its parents: the rules whose ablation the paper shows."""


def gate_policy(mode: Mode, tau_ppm: int | None = None, trust: dict[str, str] = DEFAULT) -> GatePolicy:
    """Return the harness's policy: coarse taint, authority that denies, or authority that repairs.

    Args:
        mode: Which reading.
        tau_ppm: Another τ; None keeps the default.
        trust: Trust rules that differ from the file's.
    """
    data = resources.files("benchmarks.gate.lineage").joinpath("policy.yaml").read_bytes()
    policy = parse_gate_policy(data, "policy.yaml")
    tools = {
        name: ToolRule(mode="coarse")
        if mode == "coarse"
        else msgspec.structs.replace(rule, refusal="deny" if mode == "deny" else "repair")
        for name, rule in policy.tools.items()
    }
    return msgspec.structs.replace(
        policy, tools=MappingProxyType(tools), tau_ppm=policy.tau_ppm if tau_ppm is None else tau_ppm,
        trust=msgspec.structs.replace(policy.trust, **trust),  # type: ignore[arg-type]
    )  # fmt: skip
