"""Do the readers of behaviours decide alike with the packaged weights and with those of another revision?

    python -m benchmarks.guard.reader_weights --data DATA [--before REVISION]     # writes reader_weights.json

Both pairs of readers read the same recorded texts on the same machine, with the packaged curves. Three sets: the writes
of the block list's benchmark (`benchmarks.guard.hst`), each held against all ten removed behaviours; scenarios of
`benchmarks.guard.lockout_unseen`, and of those that the readers were calibrated on (`training/behaviours/held`), each
text held against its own scenario's behaviour. The scenarios of a larger sample hold those of a smaller one.

A text is decided by the largest log-odds over its behaviours. Counted is who passes a threshold with one pair and not
with the other: of refusal, of refusal after earlier ones (`near`), of doubt, in which hazards are read, and the one
from which the second reader is asked (`open`). Changes of log-odds are of texts that both pairs leave open, or neither:
elsewhere one is of two readers, the other of one.

What was read is kept in the user's cache: a second start reads only what is new.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from benchmarks.guard.hst.corpus import load_corpus
from benchmarks.guard.lockout_unseen import BLIND, TEXTS, scenarios_in
from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYGRAFT, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.guard.text.forms import visible
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.behaviour_cascade import CascadedBehaviourReader, cascade_calibration
from memory_audit.models.activations.behaviour_reader import (
    FIRST,
    SECOND,
    adapted,
    passage_means,
    read_weights,
    weights_of,
)
from memory_audit.models.activations.hidden_states import packaged_states
from memory_audit.models.weights.cache import cache_dir
from training.behaviours.corpus import HELD, scenarios
from training.behaviours.kept_reader import KeptReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.models.activations.behaviour_reader import ReaderFile, ReaderWeights

ROOT = Path(__file__).parents[2]
AT_ONCE = 10
"""Writes of the block list's benchmark in one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Texts, and the removed behaviours that each is held against."""

    of: str
    """Name of the set."""

    behaviours: tuple[str, ...]
    writes: tuple[str, ...]


class Told:
    """What a pair of readers says, kept in the user's cache.

    Args:
        pair: Weights of the first reader and of the second, with their digests.
    """

    def __init__(self, pair: Sequence[tuple[ReaderWeights, str]]) -> None:
        self._reader = cascade([weights for weights, _ in pair])
        self._path = cache_dir() / f"reader_weights-{'-'.join(digest for _, digest in pair)}.jsonl"
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.is_file() else []
        self._known: dict[str, list[float]] = dict(map(json.loads, lines))

    def __call__(self, question: Question) -> list[float]:
        """Return for each write the largest log-odds that it restates one of the behaviours."""
        key = hashlib.sha256(repr((question.behaviours, question.writes)).encode()).hexdigest()
        if key not in self._known:
            directions = np.stack([reading.direction for reading in self._reader.taught(question.behaviours)])
            readings = self._reader.read(question.writes)
            self._known[key] = [float(self._reader.log_odds(reading, directions).max()) for reading in readings]
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self._known[key]]) + "\n")
        return self._known[key]


def main() -> None:
    """Read, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="09c124a", help="revision whose weights the packaged ones are held against")
    parser.add_argument("--scenarios", type=int, default=38, help="of the blind and unseen ones, ten texts each")
    parser.add_argument("--held", type=int, default=9, help="scenarios of those held, up to fifteen texts each")
    add_data(parser, MEMORYGRAFT)
    options = parser.parse_args()
    joint, curve = cascade_calibration()
    asked = questions(options.data, options.scenarios, options.held)
    pairs = [[weights_at(options.before, source) for source in (FIRST, SECOND)], [*map(read_weights, (FIRST, SECOND))]]
    config = {
        "before": [digest for _, digest in pairs[0]], "packaged": [digest for _, digest in pairs[1]],
        "scenarios": options.scenarios, "held": options.held,
    }  # fmt: skip
    command = "python -m benchmarks.guard.reader_weights --data DATA"
    command += f" --before {options.before} --scenarios {options.scenarios} --held {options.held}"
    results = ResultFile("reader_weights", command, config, fresh=True)
    told = [Told(pair) for pair in pairs]
    found: dict[str, list[list[list[float]]]] = {}
    with Reporter(Console()).stage("reading texts", len(asked)) as progress:
        for question in asked:
            found.setdefault(question.of, []).append([by(question) for by in told])
            progress.advance()
    thresholds = {
        "refused": curve.threshold_nats, "near": curve.near_nats, "doubt": curve.doubt_nats, "open": joint.open_nats,
    }  # fmt: skip
    for name, parts in found.items():
        before, after = np.concatenate([np.array(part) for part in parts], axis=1)
        results.add_row({"texts": name} | compared(before, after, thresholds))
        Console().print(results.rows[-1])
    differ = sum(row["decided_otherwise"] for row in results.rows)
    results.add_bar("texts decided otherwise than by the weights before", differ, "texts", "0", differ == 0)


def questions(data: Path, count: int, held_count: int) -> list[Question]:
    """Return what is asked: of the block list's benchmark, and of so many scenarios of the two other sets."""
    corpus = load_corpus(data)
    poison = tuple(visible(write.response) for write in corpus.poison)
    writes = [*corpus.paraphrases, *corpus.safe_twins, *corpus.translated_twins, *corpus.benign]
    texts = [visible(write.response) for write in writes]
    found = [
        Question(of="block list", behaviours=poison, writes=tuple(texts[start : start + AT_ONCE]))
        for start in range(0, len(texts), AT_ONCE)
    ]
    unseen = [*scenarios_in(BLIND), *scenarios_in(TEXTS)]
    random.Random(3).shuffle(unseen)
    for of in unseen[:count]:
        written = tuple(map(visible, (*of["restated"], *of["safe"])))
        found.append(Question(of="blind and unseen", behaviours=(visible(of["act"]),), writes=written))
    held = list(scenarios(HELD))
    random.Random(7).shuffle(held)
    found += [
        Question(of="held", behaviours=one.texts[:1], writes=tuple(one.texts[place] for place in one.writes))
        for one in held[:held_count]
    ]
    return found


def weights_at(revision: str, source: ReaderFile) -> tuple[ReaderWeights, str]:
    """Return a reader's weights as they were packaged at a revision, with today's curve, and their short digest.

    Raises:
        UsageError: no such revision, or no such file there.
    """
    shown = subprocess.run(
        ["git", "show", f"{revision}:models/data/{source.name}"], cwd=ROOT, capture_output=True, check=False
    )
    if shown.returncode:
        raise UsageError(f"--before {revision}: no models/data/{source.name} there")
    with np.load(BytesIO(shown.stdout), allow_pickle=False) as stored:
        weights = weights_of(stored, read_weights(source)[0].curve)
    return weights, hashlib.sha256(shown.stdout).hexdigest()[:16]


def cascade(pair: Sequence[ReaderWeights]) -> CascadedBehaviourReader:
    """Return the packaged readers, with these weights."""
    joint, curve = cascade_calibration()
    first, second = (
        KeptReader(weights, source.name, partial(passages, source, weights.updates))
        for weights, source in zip(pair, (FIRST, SECOND), strict=True)
    )
    return CascadedBehaviourReader(first, second, alone=first.curve, joint=joint, curve=curve)


def passages(
    source: ReaderFile, updates: Mapping[str, NDArray[np.float32]], texts: Sequence[str]
) -> list[NDArray[np.float32]]:
    """Return what a reader sees of texts, as `PackagedBehaviourReader` reads them."""
    states = adapted(packaged_states(source.backbone, source.layer), updates)
    return [passage_means(of_text) for of_text in states.tokens(texts)]


def compared(
    before: NDArray[np.float64], after: NDArray[np.float64], thresholds: Mapping[str, float]
) -> dict[str, int | float]:
    """Count who passes a threshold only once, and say how far the log-odds moved and how near the next one lies."""
    passed = {name: (before >= nats, after >= nats) for name, nats in thresholds.items()}
    otherwise = {name: early != late for name, (early, late) in passed.items()}
    moved = np.abs(after - before)[~otherwise["open"]]
    return {
        "writes": before.size,
        "decided_otherwise": int(np.any([by for name, by in otherwise.items() if name != "open"], axis=0).sum()),
        **{f"{name}_before": int(early.sum()) for name, (early, _) in passed.items()},
        **{f"{name}_otherwise": int(by.sum()) for name, by in otherwise.items()},
        **{f"{name}_closest_nats": round(float(np.abs(before - nats).min()), 4) for name, nats in thresholds.items()},
        "largest_change_nats": round(float(moved.max(initial=0)), 4),
        "rms_change_nats": round(float(np.sqrt(np.mean(moved**2))), 4),
    }  # fmt: skip


if __name__ == "__main__":
    run(main)
