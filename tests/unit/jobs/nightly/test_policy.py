"""What a night may purge by itself."""

from __future__ import annotations

import pytest

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.jobs.nightly.config import Policy
from memory_audit.jobs.nightly.policy import outside_policy
from memory_audit.result import AuditResult, EntryScore, EventFinding, ProbeFinding, TenantResult
from tests.whole import summed

WIDE = Policy(most_entries=100, most_share=1.0)


def tenant(*, attributed=("m1",), derived=(), causes=("m1",), verdict="cleared", p=0.01, entries=10, kept=True):
    finding = EventFinding(
        event_id="e\x1b1", verdict=verdict, query="", output_observed="", output_before="", output_after="",
        harm_before=1.0, harm_after=0.0, harm_without_memory=0.0, retrieved=(), retrieved_reconstructed=False,
        retrieved_after=(), causes=tuple(causes), reason="",
    )  # fmt: skip
    scores = tuple(
        EntryScore(
            entry_id=name, cmis=None, cas=None, cmis_normalised=0, cas_normalised=0, ds=0, rank=1, cas_flagged=False,
            p_value=p,
        )
        for name in attributed
    )  # fmt: skip
    return TenantResult(
        tenant="acme", entries=entries, events=(finding,), scores=scores, edges=(),
        probes=(ProbeFinding(event_id="p1", kept=kept, output_before="", output_after=""),),
        removal=RemovalSet(attributed=dict.fromkeys(attributed, ""), derived=dict.fromkeys(derived, "")),
    )  # fmt: skip


def outside(policy, *tenants):  # noqa: ANN002
    result = AuditResult(
        run_id="r", store="s", snapshot_version=1, snapshot_digest="", started_ms=0, seconds=0, config={}, models={},
        counters={}, tenants=tenants,
    )  # fmt: skip
    return outside_policy(*summed(result), policy)


def test_by_default_nothing_may_go():
    assert outside(Policy(), tenant()) == ["1 memory would go, and the policy purges nothing"]
    assert outside(Policy(), tenant(attributed=(), causes=())) == []


@pytest.mark.parametrize(
    ("policy", "found", "told"),
    [
        (WIDE, {}, []),
        (WIDE, {"derived": ("m2",)}, []),
        (Policy(most_entries=1, most_share=1.0), {"derived": ("m2",)}, ["2 memories would go, more than 1"]),
        (Policy(most_entries=9, most_share=0.1), {}, []),
        (
            Policy(most_entries=9, most_share=0.1),
            {"derived": ("m2",)},
            ["acme: 2 of 10 memories would go, more than 10.00%"],
        ),
        (WIDE, {"verdict": "contributed"}, ["acme: event e<U+001B>1 that they caused is contributed"]),
        (Policy(most_entries=9, most_share=1.0, verdicts=("cleared", "contributed")), {"verdict": "contributed"}, []),
        (WIDE, {"verdict": "not cleared", "causes": ("m9",)}, ["acme: m1 is the cause of no event"]),
        (WIDE, {"kept": False}, ["acme: probe p1 would lose its answer"]),
        (WIDE, {"kept": None}, []),
        (Policy(most_entries=9, most_share=1.0, most_p=0.01), {}, []),
        (Policy(most_entries=9, most_share=1.0, most_p=0.01), {"p": 0.02}, ["acme: m1 has p = 0.02, not at most 0.01"]),
        (Policy(most_entries=9, most_share=1.0, most_p=0.01), {"p": None}, ["acme: m1 has no p, not at most 0.01"]),
        (
            Policy(most_entries=9, most_share=1.0, most_p=0.01),
            {"derived": ("m2",)},
            ["acme: m2 has no p, not at most 0.01"],
        ),
    ],
)
def test_each_rule_of_a_policy(policy, found, told):
    assert outside(policy, tenant(**found)) == told
