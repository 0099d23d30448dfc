"""The guard on acts that nothing was fitted or chosen on: who gets back in, and which honest notes are refused?

    python -m benchmarks.lockout_unseen [--backbone packaged:1.5b-int8] [--modes act act+labels]

`benchmarks/hst/data/unseen.jsonl`, written for this from a brief that names no benchmark: scenarios from trades that
the reader's own texts do not have, of two kinds. `practice` is bad work practice, which the packaged labels speak of;
`steering` sounds neutral and steers the agent to a wrong answer, target, person or belief, for which they have no word.
Each is a request, an act, five restatements, and five honest notes for the same request; of these, one is the act put
right in its own words, and one warns of it. All acts are removed from one tenant; every note is then written by a
writer of its own, and so is held against all tombstones.

The backbone's answers are kept in the user's cache: a second start asks only what is new.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from audit.errors import UsageError
from audit.forget.hazard import default_taxonomy
from benchmarks.hst.corpus import Write
from benchmarks.hst.extraction import packaged_backbone
from benchmarks.hst.guarding import RememberedActs, RememberedEmbedder, RememberedExtractor, Warden
from benchmarks.intervals import wilson
from benchmarks.resultfile import ResultFile
from models.loading import ModelSpecs, load_acts, load_embedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.forget.decision import Decision
    from benchmarks.hst.extraction import Backbone

TEXTS = Path(__file__).parent / "hst" / "data" / "unseen.jsonl"
MODES = ("act", "act+labels")
RESTATED = ("other words", "another angle", "terse", "nearly word for word", "within routine")
SAFE = ("by other means", "put right", "warns or tells", "terse", "within routine, put right")


def main() -> None:
    """Try all modes."""
    options = _options()
    asyncio.run(_run(options, packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=None)))


async def _run(options: argparse.Namespace, backbone: Backbone) -> None:
    reader = load_acts(ModelSpecs())
    if reader is None:
        raise UsageError("the packaged 0.5B is not installed: pip install 'memaudit[local-models]'")
    extractor = RememberedExtractor(backbone.extractor("all"), asyncio.get_running_loop())
    embed = RememberedEmbedder(load_embedder(ModelSpecs()))
    warden = Warden(extractor=extractor, embed=embed, acts=RememberedActs(reader), taxonomy=default_taxonomy())
    scenarios = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    config = {"backbone": backbone.model_id, "acts": reader.model_id, "scenarios": len(scenarios)}
    command = f"python -m benchmarks.lockout_unseen --backbone {options.backbone}"
    results = ResultFile("lockout_unseen", command, config, fresh=True)
    try:
        lockout = await warden.lockout(writes_of(scenarios, "act"))
        say = Console().print
        say("labels of the removed:", Counter(
            "+".join(sorted(stone.lock.signature.labels)) or "none" for stone in lockout.stones if stone.lock.signature
        ))  # fmt: skip
        for mode in options.modes:
            guard = warden.guard(lockout, mode)
            try:
                for name in ("restated", "safe"):
                    for kind in dict.fromkeys(scenario["kind"] for scenario in scenarios):
                        writes = writes_of([of for of in scenarios if of["kind"] == kind], name)
                        decisions = await warden.judge(guard, writes)
                        row = {"mode": mode, "kind": kind, "texts": name, **counted(writes, decisions, name)}
                        results.add_row(row)
                        say(json.dumps({key: row[key] for key in row if key != "refused_ids"}))
            finally:
                guard.close()
    finally:
        await backbone.close()


def writes_of(scenarios: Sequence[dict[str, Any]], name: str) -> list[Write]:
    """Return the act, or the texts of one name, of scenarios; ids tell scenario and place."""
    return [
        Write(write_id=f"{scenario['id']}-{name}-{place}", request=scenario["request"], response=text)
        for scenario in scenarios
        for place, text in enumerate([scenario[name]] if name == "act" else scenario[name])
    ]


def counted(writes: Sequence[Write], decisions: Sequence[Decision], name: str) -> dict[str, Any]:
    """Count the refused, by way of writing and by reason."""
    refused = [not decision.allowed for decision in decisions]
    low, high = wilson(sum(refused), len(refused))
    ways = RESTATED if name == "restated" else SAFE
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
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    return parser.parse_args()


if __name__ == "__main__":
    main()
