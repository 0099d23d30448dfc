"""Hazard-signature tombstones on MemoryGraft: are removed poisons kept out, and what does it cost the harmless?

    python -m benchmarks.guard.hst --data DATA --packages FOLDER                           # what asks the backbone
    python -m benchmarks.guard.hst --data DATA --packages FOLDER --parts retrieval peers   # what does not

    retrieval   the attack without a defence, and what semantic keys alone can tell: hst_retrieval.json
    peers       published guards on the same writes: hst_peers.json
    guard       this project's guard and the five conditions: hst.json, hst_backfill.svg
    streams     with guard: harmless writes as one writer's stream
    adversary   with guard: the paper's adversary, who sends all paraphrases, to a guard that knows what it refused
    latency     with guard: one write at a time, without kept answers

Results go to `benchmarks/results`. The backbone's answers are kept in the user's cache: a second start asks only what
is new, so a run that was stopped is simply started again. Tags are hidden; the sets, the rule by which paraphrases
count, and the length baseline are described in `benchmarks.guard.hst.corpus`. No threshold is set here: those of the
taxonomy and of the guard are the defaults, calibrated on other texts.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console

from benchmarks.guard.hst import embedders, peers
from benchmarks.guard.hst.adversary import adversary_rows, mixed_rows, retrieved_rows, sent
from benchmarks.guard.hst.blocking import BACKBONE, WRITTEN, LengthRules, Sets, block_rows, stability_row, stream_rows
from benchmarks.guard.hst.conditions import Verdicts, backfill_rows, condition_rows, undefended_rows
from benchmarks.guard.hst.corpus import load_corpus, load_rules, load_votes
from benchmarks.guard.hst.embedders import open_embedder
from benchmarks.guard.hst.extraction import EXTRACTIONS, packaged_backbone
from benchmarks.guard.hst.figure import draw_backfill
from benchmarks.guard.hst.guarding import RememberedBehaviours, RememberedEmbedder, RememberedExtractor, Warden
from benchmarks.guard.hst.keys import key_rows
from benchmarks.guard.hst.latency import latency_rows
from benchmarks.guard.hst.paper_guard import MODES
from benchmarks.guard.hst.paraphrase import PER_POISON, generate_paraphrases, readers_rows
from benchmarks.guard.hst.peer_rows import peer_rows
from benchmarks.guard.hst.summary import print_rows, state_bars
from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYGRAFT, add_data
from benchmarks.harness.resultfile import RESULTS, ResultFile
from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy, load_taxonomy
from memory_audit.guard.decide.settings import GuardMode
from memory_audit.models.extras import with_extra
from memory_audit.models.loading import FAKE, ModelSpecs, load_behaviour_reader
from memory_audit.models.weights.hub import PACKAGED

if TYPE_CHECKING:
    from benchmarks.guard.hst.adversary import Orders
    from benchmarks.guard.hst.corpus import Corpus
    from benchmarks.guard.hst.extraction import Backbone, Extraction
    from benchmarks.guard.hst.paper_guard import Mode

DEFAULT_MODE: GuardMode = "behaviour+hazards"
READ_NO_LABELS: frozenset[Mode] = frozenset({"behaviour", "key"})
COMPARE_NO_KEYS: frozenset[Mode] = frozenset({"exact", "containment"})
PACKAGES = f"""\
Python packages in FOLDER, from PyPI; what is not there is a row with the reason
  {peers.INSTALL}
  {embedders.INSTALL}   (embedder `use`)"""

PARTS = ("retrieval", "peers", "guard", "streams", "adversary", "latency")


def main() -> None:
    """Run the parts asked for."""
    options = parse_options()
    corpus = load_corpus(options.data).thinned(options.limit)
    if "peers" in options.parts:
        run_peers(options, corpus)
    if "retrieval" in options.parts:
        run_retrieval(options, corpus)
    if "guard" in options.parts:
        backbone = packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=options.answers)
        asyncio.run(run_guard(options, corpus, backbone))


def run_peers(options: argparse.Namespace, corpus: Corpus) -> None:
    """Run the peers: no language model is needed."""
    config = {"seed": options.seed, "limit": options.limit}
    command = "python -m benchmarks.guard.hst --data DATA --parts peers --packages FOLDER"
    results = ResultFile(f"hst_peers{options.suffix}", command, config, folder=options.results, fresh=True)
    for row in peer_rows(corpus, options.packages, options.seed):
        results.add_row(row)
    print_rows(results.rows)


def run_retrieval(options: argparse.Namespace, corpus: Corpus) -> None:
    """Measure what needs embedders and no language model."""
    config = {"limit": options.limit, "embedders": options.embedders}
    command = "python -m benchmarks.guard.hst --data DATA --parts retrieval --packages FOLDER"
    results = ResultFile(f"hst_retrieval{options.suffix}", command, config, folder=options.results, fresh=True)
    for name in options.embedders:
        try:
            embedder = open_embedder(name, [write.text for write in corpus.benign], options.packages)
        except UsageError as error:
            results.add_row({"part": "keys", "embedder": name, "skipped": str(error)})
            continue
        _add(results, undefended_rows(corpus, name, embedder))
        _add(results, key_rows(corpus, name, embedder))
    print_rows(results.rows)


async def run_guard(options: argparse.Namespace, corpus: Corpus, backbone: Backbone) -> None:
    """Run all that needs the backbone, and close it."""
    guard_embedder = open_embedder(options.guard_embedder, [write.text for write in corpus.benign], options.packages)
    taxonomy = default_taxonomy() if options.taxonomy is None else load_taxonomy(options.taxonomy)
    reader = load_behaviour_reader(ModelSpecs(embedder=FAKE if options.guard_embedder == FAKE else PACKAGED))
    if reader is None:
        raise UsageError(f"the packaged 0.5B and 1.5B are not installed; {with_extra('local-models')}")
    behaviours = RememberedBehaviours(reader)
    config = {
        "backbone": backbone.model_id, "guard_embedder": guard_embedder.model_id, "taxonomy": taxonomy.digest,
        "thresholds_nats": {label.name: label.threshold_nats for label in taxonomy.labels}, "seed": options.seed,
        "acts": behaviours.model_id, "limit": options.limit, "embedders": options.embedders,
        "extractions": options.extractions,
    }  # fmt: skip
    command = f"python -m benchmarks.guard.hst --data DATA --backbone {options.backbone} --packages FOLDER"
    if options.extractions != list(EXTRACTIONS):
        command += f" --extractions {' '.join(options.extractions)}"
    if options.suffix:
        command += f" --suffix {options.suffix}"
    results = ResultFile(f"hst{options.suffix}", command, config, folder=options.results, fresh=True)
    embed = RememberedEmbedder(guard_embedder)
    say = Console().print
    try:
        each = PER_POISON if options.limit is None else 1
        votes = load_votes()
        found = await generate_paraphrases(
            backbone.kept, corpus.poison, load_rules(), options.seed, each, votes=votes
        )  # fmt: skip
        left_out = [dict(item) for item in found.left_out]
        results.add_row({"part": "paraphrases, backbone", "kept": len(found.kept), "left_out": left_out})
        _add(results, readers_rows(found, votes))
        sets, rules = Sets.of(corpus, found, options.seed), LengthRules.of(corpus, options.seed)
        results.add_row({
            "part": "length", "limit": rules.plain.limit_characters, "auc": rules.plain.auc,
            "limit_matched": rules.matched.limit_characters, "auc_matched": rules.matched.auc,
        })  # fmt: skip
        for number, extraction in enumerate(options.extractions):
            extractor = RememberedExtractor(backbone.extractor(extraction), asyncio.get_running_loop())
            warden = Warden(extractor=extractor, embed=embed, behaviours=behaviours, taxonomy=taxonomy)
            block_list = await warden.block_list(corpus.poison)
            refused: dict[str, bool] = {}
            for mode in MODES:
                if mode in READ_NO_LABELS and number:
                    continue  # reads no labels: the same for every extraction
                say(f"{extraction}, {mode}: {extractor.texts_asked} texts read so far")
                # Without keys the model is asked about everything.
                tried = sets if number == 0 and mode not in COMPARE_NO_KEYS else sets.compared(attacks=number == 0)
                rows, verdict = await block_rows(warden, block_list, extraction, mode, tried, rules)
                refused = verdict if mode == DEFAULT_MODE else refused
                _add(results, rows)
            read = sets if number == 0 else sets.compared(attacks=False)
            _add(results, [await stability_row(warden, extraction, corpus, read)])
            if number == 0:
                for mode in get_args(GuardMode):
                    if "streams" in options.parts:
                        _add(results, await stream_rows(warden, block_list, extraction, mode, sets, rules))
                    if "latency" in options.parts:
                        await _measure_latency(options, corpus, backbone, warden, extraction, mode, results)
                adversary: dict[tuple[str, str], Orders] = {}
                if "adversary" in options.parts:
                    say(f"{extraction}, {DEFAULT_MODE}: the adversary")
                    adversary = await sent(warden, block_list, DEFAULT_MODE, sets, options.seed)
                    _add(results, adversary_rows(adversary))
                    _add(results, await mixed_rows(warden, block_list, DEFAULT_MODE, sets, options.seed))
                await _measure_retrieval(options, corpus, sets, rules, warden, refused, adversary, results)
        results.add_row({"part": "cost", "answers_computed": backbone.kept.computed})
    finally:
        await backbone.close()
    state_bars(results, options.extractions[0], DEFAULT_MODE)
    print_rows(results.rows)


async def _measure_retrieval(  # noqa: PLR0917 - one call, all parts of the study
    options: argparse.Namespace, corpus: Corpus, sets: Sets, rules: LengthRules, warden: Warden,
    refused: dict[str, bool], adversary: dict[tuple[str, str], Orders], results: ResultFile,
) -> None:  # fmt: skip
    tombstones = list((await warden.signatures(corpus.poison)).values())
    everything = [*corpus.benign, *sets.harmful[WRITTEN], *sets.harmful[BACKBONE]]
    verdicts = Verdicts(
        tombstones=tombstones, signatures=await warden.signatures(everything), refused=refused
    )  # fmt: skip
    curves: dict[str, list[dict[str, Any]]] = {}
    for name in options.embedders:
        try:
            embedder = open_embedder(name, [write.text for write in corpus.benign], options.packages)
        except UsageError as error:
            results.add_row({"part": "condition", "embedder": name, "skipped": str(error)})
            continue
        for group in (WRITTEN, BACKBONE):
            if not sets.harmful[group]:
                continue
            head = {"part": "condition", "embedder": name, "embedder_id": embedder.model_id, "set": group}
            rows = condition_rows(corpus, sets.harmful[group], embedder, verdicts, rules.plain)
            _add(results, [{**head, **row} for row in rows])
        _add(results, retrieved_rows(corpus, sets, name, embedder, adversary))
        curves[name] = backfill_rows(corpus, sets.harmful[WRITTEN], embedder, verdicts)
        _add(results, [{"part": "backfill", "embedder": name, **row} for row in curves[name]])
    draw_backfill(options.results / f"hst_backfill{options.suffix}.svg", curves)


async def _measure_latency(  # noqa: PLR0917
    options: argparse.Namespace, corpus: Corpus, backbone: Backbone, warden: Warden, extraction: Extraction,
    mode: GuardMode, results: ResultFile,
) -> None:  # fmt: skip
    raw = RememberedExtractor(backbone.extractor(extraction, kept=False), asyncio.get_running_loop())
    fresh = Warden(
        extractor=raw,
        embed=warden.embed,
        behaviours=RememberedBehaviours(warden.behaviours.reader),
        taxonomy=warden.taxonomy,
    )
    guard = fresh.guard(await warden.block_list(corpus.poison), mode)
    half = options.latency_writes // 2
    try:
        rows = await latency_rows(guard, [*corpus.paraphrases[:half], *corpus.benign[:half]])
    finally:
        guard.close()
    _add(results, [{"part": "latency", "extraction": extraction, "mode": mode, **row} for row in rows])


def _add(results: ResultFile, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        results.add_row(row)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYGRAFT, PACKAGES)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["guard", "streams", "adversary", "latency"])
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--extractions", nargs="+", choices=EXTRACTIONS, default=list(EXTRACTIONS),
                        help="ways to read hazards; conditions and latency use the first")  # fmt: skip
    parser.add_argument("--taxonomy", type=Path, help="a taxonomy file instead of the default")
    parser.add_argument("--guard-embedder", default="minilm", help="of the tombstones' semantic keys")
    parser.add_argument("--embedders", nargs="+", default=["minilm", "use", "ngrams"], help="of the agent's retrieval")
    parser.add_argument("--packages", type=Path, metavar="FOLDER", help="of installed peers and embedder, see below")
    parser.add_argument("--limit", type=int, help="at most so many writes of each kind, to try things out")
    parser.add_argument("--latency-writes", type=int, default=24, help="half of them paraphrases, half benign")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    parser.add_argument("--answers", type=Path, help="where answers are kept; the user's cache if not given")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    parser.add_argument("--suffix", default="", help="added to the result's file name")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
