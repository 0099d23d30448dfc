"""The methods of a study, by the names that its rows have: committed rows are read by them."""

from __future__ import annotations

__all__ = ["ALPHAS", "CMIS_ONLY", "GROUPS", "MCG_ONLY", "NNC", "OWN_COUNT", "PLAIN", "RD", "RF", "SET"]

SET = "set"
PLAIN = "plain α=0.6"
OWN_COUNT = "plain α=0.6, own count"
CMIS_ONLY = "CMIS only"
MCG_ONLY = "MCG only"
RD, RF, NNC = "RD", "RF", "NNC"

ABLATIONS = {"plain α=0.2": 0.2, "plain α=0.4": 0.4, "plain α=0.8": 0.8, CMIS_ONLY: 1.0, MCG_ONLY: 0.0}

ALPHAS = {PLAIN: 0.6, **ABLATIONS}
"""The alpha of each ranking by CMIS + CAS that is told how many memories to remove."""

GROUPS = {
    "set": (SET,), "plain": (PLAIN,), "own": (OWN_COUNT,), "ablations": tuple(ABLATIONS), "baselines": (RD, RF, NNC),
}  # fmt: skip
"""What `--methods` takes, in the order of the tables. `set`: this project's search. `plain`: the paper's CMIS + CAS at
alpha 0.6, told how many memories to remove. `own`: the same, but it chooses the count itself, as the smallest prefix of
its ranking that ends the harm seen. `ablations`: its other alphas, CMIS only and MCG only. `baselines`: RD, RF and NNC
(`benchmarks.attribution.minja.study.baseline_removals`)."""
