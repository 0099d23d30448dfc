"""Which result was measured where, and by which command: `docs/results/machines.md` and `benchmarks/README.md`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.harness.pages.shown import record, table
from benchmarks.harness.resultfile import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PARTS", "QUESTIONS", "result_names"]

AUDIT, GUARD, GATE, SYSTEMS, TRAINING = "attribution", "guard", "gate", "systems", "training"

NOTHING, PACKAGED, DATA = "nothing", "packaged models", "packaged models, DATA"

QUESTIONS: dict[str, tuple[str, str, str]] = {
    "minja_qa_1.5b-int8": (AUDIT, "Is the harm gone where poison shifts answers, at every share of poison?", DATA),
    "minja_qa_0.5b": (AUDIT, "Likewise, on a smaller model", DATA),
    "minja_qa_1.5b": (AUDIT, "Likewise, with bf16 weights", DATA),
    "minja_qa_lev_1.5b-int8": (AUDIT, "Likewise, with Levenshtein retrieval", DATA),
    "minja_qa_clean_1.5b-int8": (AUDIT, "Likewise, without poison", DATA),
    "minja_qa_injected_1.5b-int8": (AUDIT, "Likewise, with poison that was really injected", DATA),
    "minja_qa_onewriter_1.5b-int8": (AUDIT, "Likewise, with all poison from one account", DATA),
    "minja_qa_copies_1.5b-int8": (AUDIT, "Likewise, with each poison ten times among 80", DATA),
    "minja_qa_copies220_1.5b-int8": (AUDIT, "Likewise, among 220", DATA),
    "minja_qa_copies340_1.5b-int8": (AUDIT, "Likewise, among 340", DATA),
    "minja_rap_1.5b-int8": (AUDIT, "Is the harm gone where a shopping agent buys another product?", DATA),
    "minja_rap_copies_1.5b-int8": (AUDIT, "Likewise, with each poison ten times", DATA),
    "study": (AUDIT, "Tables, figures and bars of all of these", NOTHING),
    "probes_kept": (AUDIT, "Are answers kept that the audit never sees?", DATA),
    "clean_store": (AUDIT, "Is memory blamed for an agent's own mistakes?", DATA),
    "calibration": (AUDIT, "How often is a benign memory blamed where evidence is calibrated?", DATA),
    "trace_task": (AUDIT, "Which of five memories did it?", PACKAGED),
    "fragments": (AUDIT, "Are sets named whole that do harm only together?", PACKAGED),
    "fragments_stand_in": (AUDIT, "Likewise, where a stand-in for the model puts notes together", NOTHING),
    "public_stores_conflictqa": (AUDIT, "Who is named where one passage contradicts a true one?", DATA),
    "public_stores_poisonedrag": (AUDIT, "Who is named where one to five passages are planted?", DATA),
    "attribution_peers": (AUDIT, "How do other methods do on one store?", DATA),
    "attribution_methods": (AUDIT, "How do published methods do on planted passages, and on clean stores?", DATA),
    "sparse_cost": (AUDIT, "What does one poison among many cost to find?", PACKAGED),
    "large_tenant": (AUDIT, "What does a large tenant cost besides its models?", NOTHING),
    "quiet_night": (AUDIT, "What does a night cost on which no harm reproduces?", NOTHING),
    "result_size": (AUDIT, "How large are the results and the page of a thousand tenants?", NOTHING),
    "ray_cost": (AUDIT, "What does Ray cost beside calls in one process, and what do more nodes gain?", NOTHING),
    "ray_serve": (AUDIT, "Would Ray Serve host the models better than actors?", "PyPI `ray[serve]`"),
    "whole_graph": (AUDIT, "What does the whole graph of a store cost, in one process and by Ray Data?", NOTHING),
    "agents": (
        AUDIT,
        "Does an agent with mem0 or LangGraph do no harm after its repair?",
        "packaged models, `make agents`",
    ),
    "scan_page": (AUDIT, "How large are the pages of a hundred thousand findings?", "Playwright, Chromium"),
    "scan_copies_fake": (AUDIT, "Likewise, with a stand-in for the embedder", NOTHING),
    "scan_clean_harm": (AUDIT, "How harmful does the guard's reader call clean memories?", DATA),
    "scan_clean": (AUDIT, "How often do detectors of texts find something in clean memories?", DATA),
    "scan_size": (AUDIT, "How long does a scan take, and one with 1 % new?", NOTHING),
    "scan_copies": (AUDIT, "Are copies and restatements told once a group?", PACKAGED),
    "trace_import": (AUDIT, "What does it cost to make events of traces?", NOTHING),
    "reading": (AUDIT, "What does it cost to read the systems that agents use?", "`make agents`"),
    "removal": (AUDIT, "Does a deletion stick in the systems that agents use?", "`make agents`"),
    "hst_int8": (
        GUARD,
        "Are paraphrases refused, one by one and sent by one adversary?",
        "packaged models, DATA, FOLDER",
    ),
    "hst_int8_list": (GUARD, "Likewise, asking for all labels in one answer", "packaged models, DATA, FOLDER"),
    "hst_int8_without_probe": (GUARD, "Likewise, without the probe", "packaged models, DATA, FOLDER"),
    "hst_int8_backbone_only": (GUARD, "Likewise, by the backbone alone", "packaged models, DATA, FOLDER"),
    "hst_peers": (GUARD, "What do published guards refuse?", "DATA, FOLDER"),
    "hst_retrieval": (GUARD, "What does the attack do without a defence?", "embedders, DATA, FOLDER"),
    "lockout_drawn": (GUARD, "Likewise, on ten times as many paraphrases", DATA),
    "lockout_unseen": (GUARD, "And of removals from other trades?", DATA),
    "lockout_blind": (GUARD, "And of removals that nothing was fitted on?", DATA),
    "many_acts": (GUARD, "What do many removals add to what is refused by mistake?", DATA),
    "reader_weights": (GUARD, "Do the readers decide alike with weights of half the size?", DATA),
    "guard_connections": (GUARD, "Do thousands of idle connections stop those that write?", NOTHING),
    "guard_latency": (GUARD, "How long does a write take without a model?", "packaged embedder"),
    "agentdojo": (GATE, "Do injected tool calls succeed?", "the extra `agentdojo`"),
    "agentdojo_backbone": (
        GATE,
        "Likewise, with a real model in the script's place",
        "the extra `agentdojo`, packaged models",
    ),
    "lineage": (GATE, "Does poison get through many steps of summaries?", NOTHING),
    "lineage_laundering": (
        GATE,
        "Which channels launder a value, and what does closing them cost?",
        NOTHING,
    ),
    "lineage_latency": (GATE, "How long does a decision take?", NOTHING),
    "lineage_graph": (GATE, "How large is a graph of a million edges?", NOTHING),
    "derivation": (GATE, "How well are edges estimated that nobody recorded?", PACKAGED),
    "agmi_semantic": (GATE, "What is a planted memory served as?", "packaged embedder, PyPI `agent-memory-integrity`"),
    "merkle": (SYSTEMS, "How fast is the Merkle tree?", NOTHING),
    "verify": (SYSTEMS, "How fast are verifying and appending?", NOTHING),
    "verify_1e6": (SYSTEMS, "Likewise, at a million entries", NOTHING),
    "object_store": (SYSTEMS, "What does a store in a bucket cost beside one in a folder?", NOTHING),
    "append": (SYSTEMS, "What does an append to a large store cost?", NOTHING),
    "crash": (SYSTEMS, "Is anything lost when a publisher is killed?", NOTHING),
    "house": (SYSTEMS, "How large is the code, and what does it cost to install and import?", NOTHING),
    "house_suite": (SYSTEMS, "How long does the test suite take?", NOTHING),
    "first_verdict": (SYSTEMS, "What does a new clone cost until its first verdict?", "a network"),
    "ways": (SYSTEMS, "What do a write and an audit cost, and how does the code hold together?", NOTHING),
    "fuzz": (SYSTEMS, "Does any decoder fail in a way that is not ours?", NOTHING),
    "nli_throughput": (SYSTEMS, "How fast is NLI?", DATA),
    "replay_throughput": (SYSTEMS, "How fast are replays?", PACKAGED),
    "serving_settings": (SYSTEMS, "Which settings of vLLM are best on two cores?", PACKAGED),
    "act_reading": (
        TRAINING,
        "How well does the guard's first reader tell restatements?",
        "packaged models, texts in `training`",
    ),
    "act_cascade": (TRAINING, "How well do both readers?", "states that `training.behaviour_reading` keeps"),
    "doubt_calibration": (TRAINING, "From where does what is in doubt count as restated?", PACKAGED),
    "hazard_probing": (TRAINING, "How well does the probe tell hazards?", PACKAGED),
    "hazard_reading": (TRAINING, "How well do three instruments together?", PACKAGED),
}
"""Result: its part, what it answers, what its command needs besides this repository."""

ROWS_ALONE = frozenset({"lineage_rows"})
"""Files that hold rows of another result."""


def result_names() -> list[str]:
    """Return the names of all committed results, those first that are listed."""
    found = {path.stem for path in RESULTS.glob("*.json")} - ROWS_ALONE
    return [name for name in QUESTIONS if name in found] + sorted(found - QUESTIONS.keys())


def commands() -> str:
    """Every result: question, command, file, minutes, needs."""
    lines = []
    for name in result_names():
        part, question, needs = QUESTIONS.get(name, ("–", "–", "–"))
        minutes = record(name)["seconds"] / 60
        lines.append((part, question, f"`{record(name)['command']}`", f"`{name}.json`",
                      "< 1" if minutes < 1 else f"{minutes:.0f}", needs))  # fmt: skip
    return table(("part", "question", "command", "result file", "minutes", "needs"), lines)


def machines() -> str:
    """Every machine: what was measured on it, whole or in part."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in result_names():
        whole = record(name)["machine"]["cpu"]
        found[whole].append(f"`{name}`")
        others = {row["machine"] for row in record(name).get("rows", ()) if "machine" in row} - {whole}
        for machine in sorted(others):
            found[machine].append(f"some rows of `{name}`")
    described = {record(name)["machine"]["cpu"]: record(name)["machine"] for name in result_names()}
    lines = [
        (cpu, described[cpu]["cores"] if cpu in described else "–",
         f"{described[cpu]['memory_gib']:.0f} GiB" if cpu in described else "–", ", ".join(names))
        for cpu, names in sorted(found.items())
    ]  # fmt: skip
    return table(("processor", "cores", "memory", "results"), lines)


PARTS: dict[str, Callable[[], str]] = {"commands": commands, "machines": machines}
