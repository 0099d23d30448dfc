"""The guard on behaviours that nothing was fitted on: who gets back in, and which honest notes are refused?

    python -m benchmarks.guard.lockout_unseen [--backbone packaged:1.5b-int8]     # writes lockout_unseen.json
    python -m benchmarks.guard.lockout_unseen --data DATA                         # and MemoryBank's turns, as writes
    python -m benchmarks.guard.lockout_unseen --blind                             # others: writes lockout_blind.json

`benchmarks/guard/hst/data/unseen.jsonl`, written for this from a brief that names no benchmark: scenarios from trades
that the reader's own texts did not have then (they have most since, and one scenario a near twin), of two kinds.
`practice` is bad work practice, which the packaged labels speak of; `steering` sounds neutral and steers the agent to a
wrong answer, target, person or belief, for which they have no word. Each is a request, a behaviour, five restatements,
and five honest notes for the same request; of these, one is the behaviour put right in its own words, and one warns of
it. All behaviours are removed from one tenant; every note is then written by a writer of its own, and so is held
against all tombstones. Beside the modes as they are, `behaviour+hazards` is tried as it was before behaviour and hazard
were weighed together (`training.doubt_calibration`): labels alone then decide what is in doubt.

`benchmarks/guard/hst/data/blind.jsonl` has 64 scenarios of the same two kinds, by writers who knew no text and no
figure of this project and chose the corners of life themselves; it was measured after the reader's last texts were
written.

The backbone's answers are kept in the user's cache: a second start asks only what is new.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.guard.hst.corpus import Write
from benchmarks.guard.hst.extraction import packaged_backbone
from benchmarks.guard.hst.guarding import RememberedBehaviours, RememberedEmbedder, RememberedExtractor, Warden
from benchmarks.harness.command import run
from benchmarks.harness.intervals import wilson
from benchmarks.harness.public_data import MEMORYBANK, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.models.extras import with_extra
from memory_audit.models.loading import ModelSpecs, load_behaviour_reader, load_embedder
from training.behaviours.report import turns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.guard.hst.extraction import Backbone
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardMode

DATA = Path(__file__).parent / "hst" / "data"
TEXTS = DATA / "unseen.jsonl"
BLIND = DATA / "blind.jsonl"
CALIBRATED_ON = DATA / "doubt.jsonl"
"""Others of the same making, on which `training.doubt_calibration` fits."""

WAYS = {
    "restated": ("other words", "another angle", "terse", "nearly word for word", "within routine"),
    "safe": ("by other means", "put right", "warns or tells", "terse", "within routine, put right"),
}
"""How the texts of a scenario are written, in order."""


def main() -> None:
    """Try the modes."""
    options = _options()
    turns = None if options.data is None else turns_of(options.data)
    asyncio.run(_run(options, packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=None), turns))


async def _run(options: argparse.Namespace, backbone: Backbone, turns: Sequence[str] | None) -> None:
    warden = warden_over(backbone)
    scenarios = scenarios_in(BLIND if options.blind else TEXTS)
    config = {"backbone": backbone.model_id, "acts": warden.behaviours.model_id, "scenarios": len(scenarios)}
    command = f"python -m benchmarks.guard.lockout_unseen --backbone {options.backbone}" + " --blind" * options.blind
    tried = [
        (kind, name, writes_of([of for of in scenarios if of["kind"] == kind], name))
        for kind in dict.fromkeys(scenario["kind"] for scenario in scenarios) for name in WAYS
    ]  # fmt: skip
    if turns is not None:
        command += " --data DATA"
        talk = [Write(write_id=f"turn-{number}", request="", response=text) for number, text in enumerate(turns)]
        tried.append(("ordinary talk", "MemoryBank's turns", talk))
    results = ResultFile("lockout_blind" if options.blind else "lockout_unseen", command, config, fresh=True)
    try:
        block_list = await warden.block_list(writes_of(scenarios, "act"))
        ways: tuple[tuple[GuardMode, bool], ...] = (
            ("behaviour", False), ("behaviour+hazards", True), ("behaviour+hazards", False),
        )  # fmt: skip
        for mode, labels_alone in ways:
            guard = (labels_deciding(warden) if labels_alone else warden).guard(block_list, mode)
            head = {"mode": mode + (", labels alone" if labels_alone else "")}
            try:
                for kind, name, writes in tried:
                    decisions = await warden.judge(guard, writes)
                    row = {**head, "kind": kind, "texts": name, **counted(writes, decisions, name)}
                    results.add_row(row)
                    Console().print({key: row[key] for key in row if key != "refused_ids"})
            finally:
                guard.close()
    finally:
        await backbone.close()


def warden_over(backbone: Backbone) -> Warden:
    """Return the packaged models around a backbone; inside an event loop, which stays the backbone's.

    Raises:
        UsageError: the packaged reader of behaviours is not installed.
    """
    reader = load_behaviour_reader(ModelSpecs())
    if reader is None:
        raise UsageError(f"the packaged 0.5B and 1.5B are not installed; {with_extra('local-models')}")
    extractor = RememberedExtractor(backbone.extractor("all"), asyncio.get_running_loop())
    embed = RememberedEmbedder(load_embedder(ModelSpecs()))
    return Warden(
        extractor=extractor, embed=embed, behaviours=RememberedBehaviours(reader), taxonomy=default_taxonomy()
    )


def labels_deciding(warden: Warden) -> Warden:
    """Return the same models, where labels alone decide what the behaviour leaves in doubt."""
    behaviours = RememberedBehaviours(warden.behaviours)
    behaviours.curve = replace(behaviours.curve, fused_nats=math.inf)
    return replace(warden, behaviours=behaviours)


def scenarios_in(path: Path) -> list[dict[str, Any]]:
    """Read scenarios, one for each line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def writes_of(scenarios: Sequence[dict[str, Any]], name: str) -> list[Write]:
    """Return the behaviour, or the texts of one name, of scenarios; ids tell scenario and place."""
    return [
        Write(write_id=f"{scenario['id']}-{name}-{place}", request=scenario["request"], response=text)
        for scenario in scenarios
        for place, text in enumerate([scenario[name]] if name == "act" else scenario[name])
    ]


def counted(writes: Sequence[Write], decisions: Sequence[GuardDecision], name: str) -> dict[str, Any]:
    """Count the refused, by way of writing and by reason."""
    refused = [not decision.allowed for decision in decisions]
    low, high = wilson(sum(refused), len(refused))
    ways = WAYS.get(name, ())
    return {
        "n": len(writes), "refused": sum(refused), "rate": round(sum(refused) / len(writes), 3),
        "low": round(low, 3), "high": round(high, 3),
        "labels_read": sum(decision.labels is not None for decision in decisions),
        "by_way": {way: sum(refused[place :: len(ways)]) for place, way in enumerate(ways)},
        "reasons": dict(Counter(decision.reason for decision in decisions).most_common()),
        "refused_ids": [write.write_id for write, gone in zip(writes, refused, strict=True) if gone],
    }  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYBANK, required=False)
    parser.add_argument("--blind", action="store_true", help="the 64 scenarios of blind.jsonl")
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
