"""The three gate policies of the harness: one file, and its two stricter readings."""

from __future__ import annotations

import dataclasses
from importlib import resources
from types import MappingProxyType
from typing import Literal

from audit.lineage.policy import GatePolicy, ToolRule, parse_gate_policy

__all__ = ["Mode", "gate_policy"]

Mode = Literal["coarse", "deny", "repair"]


def gate_policy(mode: Mode, tau_ppm: int | None = None) -> GatePolicy:
    """Return the harness's policy: coarse taint, authority that denies, or authority that repairs.

    Args:
        mode: Which reading.
        tau_ppm: Another τ; None keeps the default.
    """
    data = resources.files("benchmarks.lineage").joinpath("policy.yaml").read_bytes()
    policy = parse_gate_policy(data, "policy.yaml")
    tools = {
        name: ToolRule(mode="coarse")
        if mode == "coarse"
        else dataclasses.replace(rule, refusal="deny" if mode == "deny" else "repair")
        for name, rule in policy.tools.items()
    }
    return dataclasses.replace(
        policy, tools=MappingProxyType(tools), tau_ppm=policy.tau_ppm if tau_ppm is None else tau_ppm
    )
