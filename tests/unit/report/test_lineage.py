"""Trust labels and descendants in every report: named, priced, and as harmless as all text from memory."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from memory_audit.report.findings import removal_set
from memory_audit.report.summary import lineage_notes, path_line, removed_of
from memory_audit.result import (
    PATH_HEAD,
    PATH_TAIL,
    DescendantFinding,
    EntryTrust,
    LineageStep,
    QuarantineCheck,
    TenantLineage,
    bounded_path,
)
from tests.unit.report.sample import sample_result
from tests.whole import headline_of, page_of, sarif_of, table_of

HOSTILE = "<script>x</script>\x1b[2J\u202e[red]"


def step(name, trust="derived-untrusted", weight=None, *, removed=False):
    return LineageStep(entry_id=name, trust=trust, removed=removed, weight=weight)


def with_lineage(proposal, *, name=None, probes_lost=(), quarantine=None):
    """The sample's first tenant, where the last removed entry derives from the first, and one kept entry too."""
    result = sample_result()
    tenant = result.tenants[0]
    first, *_, last = [score.entry_id for score in removed_of(tenant)]
    kept = next(score.entry_id for score in tenant.scores if score.entry_id not in tenant.removal.removed)
    second = kept if name is None else name
    labels_of = dict.fromkeys(tenant.removal.removed, "derived-untrusted") | {first: "external"}
    labels = tuple(
        EntryTrust(
            entry_id=score.entry_id,
            trust=labels_of.get(score.entry_id, "trusted"),
            path=(step(first, "external"), step(last, weight=0.5)) if score.entry_id == last else (),
        )
        for score in tenant.scores
    )
    lineage = TenantLineage(
        tau=0.2, edges=7, estimated_edges=0, entries=labels, probes_lost=probes_lost, quarantine=quarantine,
        descendants=(
            DescendantFinding(
                entry_id=last, proposal="remove", path=(step(first, "external"), step(last, weight=0.5)),
                estimated=False, reason=f"derived from {first} over 1 strong edge",
            ),
            DescendantFinding(
                entry_id=second, proposal=proposal, estimated=True, reason=f"derived from {first} over 2 strong edges",
                path=(step(first, "external"), step(last, weight=0.5), step(second, weight=0.25)),
            ),
        ),
    )  # fmt: skip
    attributed = {name: why for name, why in tenant.removal.attributed.items() if name != last}
    tenant = replace(tenant, lineage=lineage, removal=removal_set(attributed, lineage.descendants, {}))
    return replace(result, tenants=(tenant, *result.tenants[1:])), first, last, second


def printed(result):
    out = io.StringIO()
    Console(file=out, width=240).print(table_of(result))
    return out.getvalue()


def test_the_table_names_label_path_and_proposal():
    result, first, last, kept = with_lineage("quarantine")
    text = printed(result)
    assert "7 derivation edges; memories by trust: " in text
    row = next(line for line in text.splitlines() if "0.25" in line)
    assert [
        part for part in (kept, "quarantine", f"{first} → 0.50 → {last} → 0.25 → {kept} (estimated)") if part in row
    ]
    assert "Removing the one derived memory costs no probe its answer." in text


def test_what_descent_costs_is_said_with_names():
    check = QuarantineCheck(harmful=("e-9",), probes_lost=("p-2",))
    result, *_ = with_lineage("quarantine", probes_lost=("p-1",), quarantine=check)
    cost, quarantined = lineage_notes(result.tenants[0])
    assert "costs 1 of 3 probes their answer: p-1." in cost
    assert "`descendants: quarantine`" in cost
    assert "costs the answer of p-2, and e-9 is harmful on that replay" in quarantined
    assert "memaudit purge --quarantine." in quarantined
    assert "memaudit purge --doubtful" in quarantined
    assert lineage_notes(sample_result().tenants[0]) == []


def test_the_headline_tells_attributed_memories_from_what_derived_from_them():
    result, *_ = with_lineage("quarantine")
    only = replace(result, tenants=result.tenants[:1])
    tone, sentence = headline_of(only)
    assert sentence.startswith("2 memories caused the harm, 1 more derived from them. Without all 3, no harm is left")
    assert tone == "good"


def test_the_page_has_label_and_path_on_the_card_and_a_section_for_what_stays():
    result, first, last, kept = with_lineage("quarantine")
    page = page_of(result)
    assert page.count('title="Trust label"') == 4
    assert f"Derivation: <code>{first} → 0.50 → {last}</code>" in page
    section = page[page.index("Derived memories") :]
    assert section.index(kept) < section.index("quarantine")
    assert "Derived memories" not in page_of(sample_result())


def test_sarif_has_labels_in_the_property_bag_and_a_rule_for_quarantine():
    result, first, last, _ = with_lineage("quarantine")
    run = json.loads(sarif_of(result))["runs"][0]
    bags = {
        item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].rsplit("/", 1)[1]: item["properties"]
        for item in run["results"]
        if "properties" in item
    }
    assert bags[first] == {"trustLabel": "external", "derivationPath": []}
    assert bags[last] == {"trustLabel": "derived-untrusted", "derivationPath": [first, last]}
    (held,) = [item for item in run["results"] if item["ruleId"] == "quarantined-memory"]
    assert run["tool"]["driver"]["rules"][held["ruleIndex"]]["id"] == "quarantined-memory"
    assert held["level"] == "note"
    plain = json.loads(sarif_of(sample_result()))["runs"][0]
    assert [rule["id"] for rule in plain["tool"]["driver"]["rules"]] == ["poisoned-memory", "harm-not-cleared"]


@pytest.mark.parametrize("proposal", ["quarantine", "report"])
def test_hostile_names_in_a_path_reach_no_report_unescaped(proposal):
    result, *_ = with_lineage(proposal, name=HOSTILE, probes_lost=(HOSTILE,))
    text, page, sarif = printed(result), page_of(result), sarif_of(result)
    assert "\x1b" not in text
    assert "\u202e" not in text + page + sarif
    assert "<script" not in page
    assert "[red]" in text


def test_a_long_path_keeps_its_ends():
    path = (step("n0", "external", removed=True), *(step(f"n{number}", weight=1.0) for number in range(1, 30)))
    line = path_line(path)
    assert line.startswith("n0 (removed earlier) → 1.00 → n1")
    assert "… 22 more" in line
    assert line.endswith("→ 1.00 → n29")
    bounded = bounded_path(path)
    assert len(bounded) == PATH_HEAD + PATH_TAIL + 1
    assert path_line(bounded) == line
    assert bounded_path(bounded) == bounded


def test_a_long_id_does_not_push_the_end_of_its_path_out_of_the_line():
    ids = [f"{'x' * 200}-{number}" for number in range(7)]
    result, _, _, kept = with_lineage("quarantine")
    tenant = result.tenants[0]
    path = (step(ids[0], "external"), *(step(name, weight=0.5) for name in ids[1:]), step(kept, weight=0.25))
    held = replace(tenant.lineage.descendants[1], path=path)
    lineage = replace(tenant.lineage, descendants=(tenant.lineage.descendants[0], held))
    changed = replace(result, tenants=(replace(tenant, lineage=lineage),))
    assert f"→ 0.25 → {kept}</code>" in page_of(changed)
    assert f"0.25→{kept}" in re.sub(r"[^\w.→-]", "", printed(changed))


def test_sarif_bounds_the_paths_of_an_older_result():
    result, _, last, _ = with_lineage("quarantine")
    tenant = result.tenants[0]
    path = (
        step("n0", "external"),
        *(step(f"n{number}", weight=1.0) for number in range(1, 999)),
        step(last, weight=1.0),
    )
    lineage = replace(tenant.lineage, descendants=(replace(tenant.lineage.descendants[0], path=path),))
    run = json.loads(sarif_of(replace(result, tenants=(replace(tenant, lineage=lineage),))))["runs"][0]
    (bag,) = [
        item["properties"] for item in run["results"] if item["locations"] and last in json.dumps(item["locations"])
    ]
    assert bag["derivationPath"] == ["n0", "n1", "n2", "n3", "n4", "n5", "… 992 more", "n998", last]
