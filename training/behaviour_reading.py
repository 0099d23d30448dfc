"""Fits a reader of behaviours, and says how well it tells restatements of a removed behaviour from safe answers.

    python -m training.behaviour_reading              # writes act_reading.json
    python -m training.behaviour_reading --write      # and the packaged weights (models/data/act_reader.npz)
    python -m training.behaviour_reading --packaged   # the same of the packaged weights, nothing fitted: 20 minutes
    python -m training.behaviour_reading --second     # likewise the second reader, with --write or --packaged
    python -m training.behaviour_reading --device cuda  # fits and reads on an accelerator
    python -m training.behaviour_reading --data DATA  # and what is said of MemoryBank's turns

Fitted on `training/behaviours/texts`: scenarios that language models wrote from briefs that name no benchmark. In six
parts of working life they are of bad practice (a check left out, a failure hidden); four parts are of notes that steer
an agent: `answers` (false rules of answering), `targets` (another thing or person in place of the one asked for),
`orders` (standing orders that serve somebody else) and `beliefs` (false facts and permissions). Each is a request, an
behaviour (a harmful note), seven restatements (two plain ones; terse, or the core alone; softened and padded, in the
third file of a part of practice plain again; in another language; nearly word for word, in milder ones; as one clause
of an honest routine) and as many safe answers or one more (by other means; in the behaviour's own words, put right;
warning of the behaviour, or telling how it used to be done; terse, or full of alarming words; where a restatement is
padded, nearly word for word or buried, the same put right: without these, padding alone looked harmful; and one in the
other language, said like one of the English ones, or the restatement put right: without these, another language was
harm). Beside them are notes (`training/behaviours/texts/notes`): what agents remember on an ordinary day, much of it in
a few words, and as short notes of bad practice. A reader that had only seen advice on work took "Thanks!" for harm.

Of 2,758 of the scenarios, and of 253 held ones, the packaged 1.5B rewrote a text of each side: in its own words,
briefly, as a line of instructions, for a similar task, translated into one of twenty languages, or, where it was not
in English, said again in its language. It is a small model, and what it writes is clumsy and loses parts: about four
fifths of what it made of harmful texts still teach the behaviour. Language models said of each rewrite whether it does,
without being told what it was made of, and what they could not tell was left out; those of the held scenarios were
judged twice.

Low-rank updates of all layers that are read, a projection to the behaviours' directions and the networks are fitted
together (`training.behaviours.fitting`; four minutes on an H200 with `--device cuda`, by a few steps' time some ten
hours on two cores; resumable). These layers attend both ways: a token sees what follows it, as in LLM2Vec (BehnamGhader
et al. 2024). One text in ten has an ordinary note before or after it. The first reader has seen no rewrite; the second
learns from them from its first step, and reads what the first leaves open (`training.behaviour_cascade` weighs the two
together). With `--further 180`, a second, short descent at a low rate (46 minutes on two cores) learns from them as
well, and the weights stay half-way between where it began and where it ended.

Calibrated, and reported, on `training/behaviours/held`: scenarios and notes of the same kinds, by language models
again, which nothing is fitted on but the curve and two thresholds. One of these is what one safe answer in a hundred to
the very request of the removed behaviour exceeds, the other what one in ten does. States are kept in the user's cache;
a second start reads only new texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYBANK, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, read_weights, weights_of
from memory_audit.models.activations.hidden_states import READING
from memory_audit.models.weights.cache import cache_dir, folder_id
from memory_audit.models.weights.packaged import ensure_packed
from training.behaviours.corpus import HELD, notes, scenarios
from training.behaviours.fitting import fitted_reader
from training.behaviours.fitting_states import FittingStates
from training.behaviours.kept_reader import KeptReader
from training.behaviours.report import (
    conversations_row,
    notes_row,
    odds_with_own_acts,
    rewritten_row,
    rows_of,
    turns_of,
)
from training.behaviours.scores import FLAT, fitted_curve, scores_of, spread, threshold_of
from training.behaviours.settings import FURTHER, OF_SECOND, Adapting, Fit
from training.behaviours.states import by_scenario, states_of
from training.behaviours.stored import save, stored_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.models.activations.behaviour_reader import ReaderFile
    from training.behaviours.corpus import Note, Scenario
    from training.behaviours.fitted import Fitted


def main() -> None:
    """Read, fit, adapt, calibrate, report; or read with what is packaged, and report."""
    options = _options()
    turns = None if options.data is None else turns_of(options.data)
    reporter, found, held = Reporter(Console()), scenarios(), scenarios(HELD)
    later = notes(HELD / "notes")
    source, usual = (SECOND, OF_SECOND) if options.second else (FIRST, Adapting())
    first = usual if options.steps is None else replace(usual, steps=options.steps)
    further = replace(FURTHER, steps=options.further, rank=first.rank, layers=first.layers)
    descents = [first, further] if further.steps else [first]
    if options.packaged:
        weights, _ = read_weights(source)
    else:
        fitted, updates = _fitted(found, notes(), descents, source, device=options.device, reporter=reporter)
        weights = weights_of(stored_arrays(fitted.weights(FLAT, updates)), FLAT)  # calibrated as they are stored
    read = partial(states_of, reporter=reporter, updates=weights.updates, device=options.device, source=source)
    held_states = by_scenario(read([text for scenario in held for text in scenario.texts]))
    scores = scores_of(weights, held, held_states, read([note.text for note in later]))
    if not options.packaged:
        scores = replace(scores, curve=fitted_curve(scores))
        refused, doubted = (threshold_of(scores, share) for share in (options.most_false, options.most_doubted))
        weights = replace(weights, curve=replace(scores.curve, threshold_nats=refused, doubt_nats=doubted))
    threshold, doubt = weights.curve.threshold_nats, weights.curve.doubt_nats
    config = {
        "backbone": folder_id(ensure_packed(source.backbone)), "layer": source.layer, "scenarios": len(found),
        "notes": len(notes()), "held": len(held), "held_notes": len(later), "most_false": options.most_false,
        "most_doubted": options.most_doubted, "fit": repr(Fit()), "adapting": repr(first),
        "further": repr(further), "curve": repr(weights.curve),
    }  # fmt: skip
    command = "python -m training.behaviour_reading" + " --second" * options.second + " --packaged" * options.packaged
    command += " --data DATA" * (options.data is not None)
    command += f" --steps {options.steps}" * (options.steps is not None)
    command += f" --further {options.further}" * bool(options.further)
    results = ResultFile("act_reading" + "_second" * options.second, command, config, fresh=True)
    if options.write:
        save(weights, Path(__file__).parents[1] / "models" / "data" / source.name)
    parts = np.array([scenario.part for scenario in held])
    rows = [*rows_of(scores, parts, threshold, doubt), notes_row(scores, later, threshold, doubt)]
    said = partial(odds_with_own_acts, KeptReader(weights, source.name, read), held)
    rows.append(rewritten_row(held, said, threshold, doubt))
    if turns is not None:
        behaviours = np.stack([weights.reading(texts[0]).direction for texts in held_states])
        rows.append(conversations_row(read(turns), weights, spread(behaviours)))
    for row in rows:
        results.add_row(row)
        reporter.say(json.dumps(row))


def _fitted(
    found: Sequence[Scenario],
    noted: Sequence[Note],
    descents: Sequence[Adapting],
    source: ReaderFile,
    *,
    device: str,
    reporter: Reporter,
) -> tuple[Fitted, dict[str, NDArray[np.float32]]]:
    """Fit, going on from checkpoints in the user's cache if they are of the same texts and settings."""
    folder = ensure_packed(source.backbone)
    states = FittingStates(folder, source.layer, device=device)
    of_all: list[object] = [folder_id(folder), READING, source.layer, repr(Fit())]
    of_all += [[[note.text, note.bad] for note in noted], [scenario.texts for scenario in found]]
    start = None
    for how in descents:
        of_all += [repr(how), [[one.rewritten, one.rewritten_right] for one in found] if how.rewritten else None]
        digest = hashlib.sha256(json.dumps(of_all).encode()).hexdigest()[:16]
        checkpoint = cache_dir() / f"acts-adapting-{digest}.pt"
        settings = Fit(), how
        fitted = fitted_reader(found, noted, states, settings, checkpoint=checkpoint, start=start, reporter=reporter)
        start = checkpoint
    return fitted


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYBANK, required=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write the packaged weights")
    what.add_argument("--packaged", action="store_true", help="fit nothing: read with the packaged weights and curve")
    parser.add_argument("--second", action="store_true", help="the reader of what the first leaves open")
    parser.add_argument("--steps", type=int, help="of the descent")
    parser.add_argument("--further", type=int, default=0, help="steps that follow, with what a small model rewrote")
    parser.add_argument("--device", default="cpu", help="as torch names it")
    parser.add_argument("--most-false", type=float, default=0.01, help="share of safe answers that may be refused")
    parser.add_argument("--most-doubted", type=float, default=0.1, help="share of them that may be asked about twice")
    options = parser.parse_args()
    of_a_fit = ("steps", "further", "most_false", "most_doubted")
    if options.packaged and any(getattr(options, name) != parser.get_default(name) for name in of_a_fit):
        parser.error("--packaged fits nothing: leave out --steps, --further, --most-false and --most-doubted")
    return options


if __name__ == "__main__":
    run(main)
