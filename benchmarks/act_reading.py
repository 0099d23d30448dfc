"""Fits the reader of acts, and says how well it tells restatements of a removed act from safe answers.

    python -m benchmarks.act_reading              # writes act_reading.json
    python -m benchmarks.act_reading --write      # and the packaged weights (models/data/act_reader.npz)
    python -m benchmarks.act_reading --data DATA  # and what is said of MemoryBank's turns, on which nothing is fitted

Fitted on `benchmarks/act_texts`: scenarios that language models wrote from briefs which name no benchmark. Each is a
request, an act (a harmful note), seven restatements (two plain ones; terse, or the core alone; softened and padded, in
the third file of a part plain again; in another language; nearly word for word, in milder ones; as one clause of an
honest routine) and as many safe answers (by other means; in the act's own words, put right; warning of the act, or
telling how it used to be done; terse, or full of alarming words; and where a restatement is padded, nearly word for
word or buried, the same put right: without these, padding alone looked harmful).
Beside them are notes (`benchmarks/act_texts/notes`): what agents remember on an ordinary day, much of it in a few
words, and as short notes of bad practice. A reader that had only seen advice on work took "Thanks!" for harm.

Everything reported, the curve and the threshold are out of fold: each part of working life is read by a reader that was
fitted on the others. The threshold is what one safe answer in a hundred to the very request of the removed act exceeds.
States are kept in the user's cache; a second start reads only new texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from audit.forget.act import ActCurve
from audit.forget.reading import visible
from benchmarks.derivation.measures import auc
from benchmarks.resultfile import ResultFile
from jobs.progress import Reporter
from models.act_reader import (
    ACTS_FILE,
    PASSAGE_TOKENS,
    WINDOW_TOKENS,
    ActWeights,
    HarmNetworks,
    passage_means,
    window_means,
)  # fmt: skip
from models.hazard_probe import BACKBONE, LAYER, READING, HiddenStates
from models.packaged import ensure
from models.weights_cache import cache_dir, folder_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from audit.forget.act import ActReading

__all__ = ["Fit", "Note", "Scenario", "TextStates", "fit_reader", "notes", "scenarios"]

TEXTS = Path(__file__).parent / "act_texts"

RESTATEMENTS = (
    "plain",
    "plain, another",
    "terse or core alone",
    "softened and padded",
    "another language",
    "nearly word for word",
    "buried in routine",
)
ANSWERS = (
    "by other means",
    "the act's words put right",
    "warns or tells",
    "terse or alarming words",
    "padded, put right",
    "nearly word for word, put right",
    "buried in routine, put right",
)
RESTATED, SAFE = len(RESTATEMENTS), len(ANSWERS)

HARMFUL = 1 + RESTATED
"""Texts of a scenario that teach the act; they come first."""

PADDED = 4
"""Among the answers: not there in all scenarios."""

SHORT_WORDS = 6

STRANGERS = 10
"""Acts of other scenarios that a write is compared with: as many as the tombstones of the lockout benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """An act, its restatements and safe answers, in this order."""

    part: str
    texts: tuple[str, ...]
    """HARMFUL + SAFE; where PADDED is missing, the first safe one stands there again."""

    padded: bool
    """It is not missing."""

    @property
    def writes(self) -> tuple[int, ...]:
        """Places of the texts that may come after the act was removed."""
        return tuple(place for place in range(1, HARMFUL + SAFE) if self.padded or place != HARMFUL + PADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A short memory of any kind."""

    topic: str
    text: str
    bad: bool
    """It teaches bad practice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How the reader is fitted; chosen out of fold."""

    dimensions: int = 128
    temperature: float = 0.1
    """Of the contrastive loss."""

    safe_weight: float = 4.0
    """How many strangers a safe answer to the same request counts for."""

    noise: float = 0.3
    """Added to standardised states while fitting."""

    pull: float = 0.1
    """Towards the principal components that the projection starts from."""

    epochs: int = 40
    units: int = 256
    """Of each of the networks that tell harm."""

    heads: int = 8
    """Of the attention over a text's passages."""

    networks: int = 3
    """How many, from different starts; their mean is what counts."""

    dropped: float = 0.4
    """Share of inputs, and of units, left out at random while fitting: the same in all passages of a text."""

    harm_epochs: int = 15
    harm_rate: float = 1e-3
    """Learning rate at the start, falling to a fiftieth."""

    note_weight: int = 3
    """How often a note is shown, where a text of a scenario is shown once."""

    seed: int = 0


def scenarios(folder: Path = TEXTS) -> tuple[Scenario, ...]:
    """Return the scenarios; `PART_2.jsonl` and `PART_3.jsonl` are of the same part of working life as `PART.jsonl`."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            value = json.loads(line)
            padded = len(value["safe"]) > PADDED
            safe = [*value["safe"], *([] if padded else value["safe"][:1])]
            (mild, mild_right), (buried, buried_right) = value["mild"], value["buried"]
            written = (value["act"], *value["restated"], mild, buried, *safe, mild_right, buried_right)
            part = path.stem.removesuffix("_2").removesuffix("_3")
            found.append(Scenario(part=part, texts=tuple(map(visible, written)), padded=padded))
    return tuple(found)


def notes(folder: Path = TEXTS / "notes") -> tuple[Note, ...]:
    """Return the notes, a file for each topic."""
    return tuple(
        Note(topic=path.stem, text=visible(value["text"]), bad=value["bad"])
        for path in sorted(folder.glob("*.jsonl"))
        for value in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    )


@dataclass(frozen=True, slots=True)
class TextStates:
    """Mean states of a text's windows and of its passages, shape (…, hidden) each; the whole text comes first."""

    windows: NDArray[np.float32]
    passages: NDArray[np.float32]


def fit_reader(
    found: Sequence[Scenario],
    states: Sequence[Sequence[TextStates]],
    noted: Sequence[tuple[Note, TextStates]],
    fit: Fit,
    curve: ActCurve,
) -> ActWeights:
    """Fit the projection and the networks of harm.

    Args:
        found: The scenarios.
        states: Of each scenario's texts.
        noted: Notes; the networks of harm learn from them too.
        fit: How.
        curve: Goes into the weights as it is.
    """
    acts = np.stack([np.stack([text.windows[0] for text in texts]) for texts in states])
    flat = acts.reshape(-1, acts.shape[-1])
    mean, spread = flat.mean(0), flat.std(0) + 1e-3
    projection = _contrasted((acts - mean) / spread, fit) / spread
    places = [(number, place) for number, item in enumerate(found) for place in (0, *item.writes)]
    shown = [(states[number][place], place < HARMFUL) for number, place in places]
    shown += [(text, note.bad) for note, text in noted] * fit.note_weight
    passages = [(text.passages - mean) / spread for text, _ in shown]
    networks = _harm_networks(passages, np.array([harmful for _, harmful in shown]), fit)
    units = networks.units / spread
    return ActWeights(
        projection=np.asarray(projection, np.float32), offset=np.asarray(-projection @ mean, np.float32),
        networks=replace(
            networks, units=np.asarray(units, np.float32),
            units_bias=np.asarray(networks.units_bias - units @ mean, np.float32),
        ),
        curve=curve,
    )  # fmt: skip


def _harm_networks(passages: Sequence[NDArray[np.float32]], harmful: NDArray[np.bool_], fit: Fit) -> HarmNetworks:
    """Fit networks that tell the harmful texts from the others.

    Args:
        passages: Standardised states of each text's passages, shape (passages, hidden).
        harmful: Shape (texts,).
        fit: How.
    """
    import torch  # noqa: PLC0415
    from torch.nn.functional import binary_cross_entropy_with_logits, relu  # noqa: PLC0415

    lengths = np.array([len(rows) for rows in passages])
    starts = np.cumsum(lengths) - lengths
    states = torch.from_numpy(np.concatenate(passages).astype(np.float32))
    truth = torch.from_numpy(harmful.astype(np.float32))

    def kept(texts: int, width: int) -> torch.Tensor:
        return (torch.rand(texts, width) > fit.dropped).float() / (1 - fit.dropped)

    fitted = []
    for network in range(fit.networks):
        torch.manual_seed(fit.seed + network)
        inner = torch.nn.Linear(states.shape[1], fit.units)
        queries, values = (torch.nn.Linear(fit.units, fit.heads, bias=False) for _ in range(2))
        bias = torch.nn.Parameter(torch.zeros(()))
        parts = [*inner.parameters(), *queries.parameters(), *values.parameters(), bias]
        descent = torch.optim.AdamW(parts, fit.harm_rate, weight_decay=0.1)
        slower = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.02, fit.harm_epochs)
        for _ in range(fit.harm_epochs):
            for chosen in torch.randperm(len(passages)).split(128):
                mine = lengths[chosen.numpy()]
                owner = torch.from_numpy(np.repeat(np.arange(len(mine)), mine))
                place = torch.from_numpy(np.concatenate([np.arange(length) for length in mine]))
                rows = torch.from_numpy(np.repeat(starts[chosen.numpy()], mine)) + place
                with torch.autocast("cpu", torch.bfloat16):
                    active = relu(inner(states[rows] * kept(len(mine), states.shape[1])[owner]))
                    active = active * kept(len(mine), fit.units)[owner]
                    sought, said = queries(active).float(), values(active).float()
                blank = torch.full((len(mine), int(mine.max()), fit.heads), -1e9)
                attention = blank.index_put((owner, place), sought).softmax(dim=1)[owner, place]
                odds = torch.zeros(len(mine)).index_add(0, owner, (attention * said).sum(1)) + bias
                loss = binary_cross_entropy_with_logits(odds, truth[chosen])
                descent.zero_grad()
                loss.backward()
                descent.step()
            slower.step()
        fitted.append(
            [part.detach().numpy() for part in (inner.weight, inner.bias, queries.weight, values.weight, bias)]
        )
    units, units_bias, queries_of, values_of, biases = (np.stack(part) for part in zip(*fitted, strict=True))
    return HarmNetworks(
        units=units, units_bias=units_bias, queries=queries_of, values=values_of, bias=float(biases.mean())
    )


def _contrasted(standard: NDArray[np.float32], fit: Fit) -> NDArray[np.float32]:
    """Return the projection that brings texts of one act together, away from safe answers and from all other texts."""
    import torch  # noqa: PLC0415 - heavy
    from torch.nn.functional import normalize  # noqa: PLC0415

    drawn = torch.Generator().manual_seed(fit.seed)
    states = torch.from_numpy(np.ascontiguousarray(standard, np.float32))
    flat = standard.reshape(-1, standard.shape[-1])
    _, sizes, axes = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
    start = axes[: fit.dimensions] / np.sqrt(sizes[: fit.dimensions, None] / np.sqrt(len(flat)))
    weights = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    origin, size = weights.detach().clone(), float((weights.detach() ** 2).sum())
    descent = torch.optim.Adam([weights], lr=0.03 * float(weights.detach().abs().mean()))
    for _ in range(fit.epochs):
        for chosen in torch.randperm(len(states), generator=drawn).split(64):
            rows = torch.arange(len(chosen))
            batch = states[chosen]
            batch = batch + fit.noise * torch.randn(batch.shape, generator=drawn)
            found = normalize(batch @ weights.T, dim=-1)
            key = torch.randint(0, HARMFUL, (len(chosen),), generator=drawn)
            near = torch.einsum("br,ckr->bck", found[rows, key], found) / fit.temperature
            own = near[rows, rows]
            strangers = near.clone()
            strangers[rows, rows] = -1e9
            against = torch.logaddexp(
                torch.logsumexp(strangers.flatten(1), 1),
                torch.logsumexp(own[:, HARMFUL:], 1) + float(np.log(fit.safe_weight)),
            )
            same = torch.ones(len(chosen), HARMFUL, dtype=torch.bool)
            same[rows, key] = False
            together = own[:, :HARMFUL][same].reshape(len(chosen), RESTATED)
            loss = (torch.logaddexp(together, against[:, None]) - together).mean()
            loss = loss + fit.pull * ((weights - origin) ** 2).sum() / size
            descent.zero_grad()
            loss.backward()
            descent.step()
    return np.asarray(weights.detach().numpy(), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What writes of a scenario score against its act, and against acts of others; out of fold."""

    curve: ActCurve
    own: NDArray[np.float64]
    """Log-odds, shape (scenarios, restatements and safe answers); NaN where a text is missing."""

    strangers: NDArray[np.float64]
    """Largest log-odds over STRANGERS acts of the same part, same shape."""

    similarity: NDArray[np.float64]
    """Of the whole text with its act, same shape."""

    harm: NDArray[np.float64]
    """Of the whole text, same shape."""

    notes: NDArray[np.float64]
    """Largest log-odds of notes over STRANGERS acts, shape (notes,)."""

    def chosen(self, held: NDArray[np.bool_]) -> Scores:
        """Return those of some scenarios."""
        return replace(self, **{name: getattr(self, name)[held] for name in ("own", "strangers", "similarity", "harm")})


def out_of_fold(
    found: Sequence[Scenario],
    states: Sequence[Sequence[TextStates]],
    noted: Sequence[tuple[Note, TextStates]],
    fit: Fit,
    reporter: Reporter,
) -> Scores:
    """Read each part with a reader that was fitted on the others, and fit the curve to what they say.

    Args:
        found: The scenarios.
        states: Of each scenario's texts.
        noted: Notes; those of the first topic are held out with the first part, and so on.
        fit: How.
        reporter: For progress.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    flat = ActCurve(similarity_slope=1.0, harm_slope=0.0, bias=0.0, threshold_nats=0.0)
    read: list[tuple[int, int, ActReading, NDArray[np.float32], NDArray[np.float32]]] = []
    parts = np.array([scenario.part for scenario in found])
    names = list(dict.fromkeys(parts.tolist()))
    topics = list(dict.fromkeys(note.topic for note, _ in noted))
    of_notes: list[tuple[int, ActReading, NDArray[np.float32]]] = []
    with reporter.stage("fitting out of fold", len(names)) as progress:
        for fold, name in enumerate(names):
            others = np.flatnonzero(parts != name).tolist()
            apart = [topics.index(note.topic) % len(names) == fold for note, _ in noted]
            kept = [item for item, out in zip(noted, apart, strict=True) if not out]
            weights = fit_reader([found[n] for n in others], [states[n] for n in others], kept, fit, flat)
            numbers = np.flatnonzero(parts == name).tolist()
            acts = [states[number][0] for number in numbers]
            keys = np.concatenate([weights.reading_of(act.windows[:1], act.passages).directions for act in acts])
            for place, number in enumerate(numbers):
                strangers = _spread(np.roll(keys, -1 - place, axis=0)[:-1])
                for column in found[number].writes:
                    text = states[number][column]
                    reading = weights.reading_of(text.windows, text.passages)
                    own = reading.directions @ keys[place]
                    read.append((number, column - 1, reading, own, (reading.directions @ strangers.T).max(1)))
            for number in np.flatnonzero(apart).tolist():
                text = noted[number][1]
                reading = weights.reading_of(text.windows, text.passages)
                of_notes.append((number, reading, (reading.directions @ _spread(keys).T).max(1)))
            progress.advance()
    taught = np.array([column < RESTATED for _, column, *_ in read])
    features = np.array([(own[0], reading.harm_nats[0]) for _, _, reading, own, _ in read])
    line = LogisticRegression().fit(features, taught)
    (similarity, harm), bias = line.coef_[0], float(line.intercept_[0])
    curve = ActCurve(similarity_slope=float(similarity), harm_slope=float(harm), bias=bias, threshold_nats=0.0)
    shape = (len(found), HARMFUL + SAFE - 1)
    scores = Scores(curve=curve, own=np.full(shape, np.nan), strangers=np.full(shape, np.nan),
                    similarity=np.full(shape, np.nan), harm=np.full(shape, np.nan),
                    notes=np.full(len(noted), np.nan))  # fmt: skip
    for number, column, reading, own, stranger in read:
        scores.own[number, column] = curve.log_odds(reading, own[:, None])[0]
        scores.strangers[number, column] = curve.log_odds(reading, stranger[:, None])[0]
        scores.similarity[number, column], scores.harm[number, column] = own[0], reading.harm_nats[0]
    for number, reading, stranger in of_notes:
        scores.notes[number] = curve.log_odds(reading, stranger[:, None])[0]
    return scores


def _spread(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Choose STRANGERS acts from all over a part."""
    return keys[:: max(1, len(keys) // STRANGERS)][:STRANGERS]


def threshold_of(scores: Scores, most_false: float) -> float:
    """Return what the given share of safe answers to an act's own request exceeds, in nats."""
    safe = scores.own[:, RESTATED:]
    safe = np.sort(safe[~np.isnan(safe)])[::-1]
    return round(float(safe[int(most_false * len(safe))]), 3)


def rows_of(every: Scores, parts: NDArray[np.str_], threshold: float, doubt: float) -> Iterator[dict[str, object]]:
    """Yield one row for all, and one for each part."""
    for part in ("all", *dict.fromkeys(parts.tolist())):
        held = (parts == part) | (part == "all")
        scores = every.chosen(held)
        own, harm, strangers, similarity = scores.own, scores.harm, scores.strangers, scores.similarity
        yield {
            "part": part, "scenarios": int(held.sum()),
            "auc": _auc(own[:, :RESTATED], own[:, RESTATED:]),
            "auc_similarity_alone": _auc(similarity[:, :RESTATED], similarity[:, RESTATED:]),
            "auc_harm_alone": _auc(harm[:, :RESTATED], harm[:, RESTATED:]),
            "auc_against": {kind: _auc(own[:, :RESTATED], own[:, RESTATED + n]) for n, kind in enumerate(ANSWERS)},
            "restated_refused": _share(own[:, :RESTATED], threshold),
            "refused_by_kind": {kind: _share(own[:, n], threshold) for n, kind in enumerate(RESTATEMENTS)},
            "safe_refused": _share(own[:, RESTATED:], threshold),
            "safe_refused_by_kind": {
                kind: _share(own[:, RESTATED + n], threshold) for n, kind in enumerate(ANSWERS)
            },
            "restated_in_doubt_or_refused": _share(own[:, :RESTATED], doubt),
            "in_doubt_or_refused_by_kind": {kind: _share(own[:, n], doubt) for n, kind in enumerate(RESTATEMENTS)},
            "safe_in_doubt_or_refused": _share(own[:, RESTATED:], doubt),
            "safe_elsewhere_in_doubt_or_refused": _share(strangers[:, RESTATED:], doubt),
            "safe_elsewhere_refused": _share(strangers[:, RESTATED:], threshold),
            "harmful_elsewhere_refused": _share(strangers[:, :RESTATED], threshold),
        }  # fmt: skip


def notes_row(scores: Scores, noted: Sequence[Note], threshold: float, doubt: float) -> dict[str, object]:
    """Return what is said of notes, ordinary and bad, by length."""
    row: dict[str, object] = {"part": "notes"}
    words = np.array([len(note.text.split()) for note in noted])
    for kind, bad in (("ordinary", False), ("bad", True)):
        mine = np.array([note.bad == bad for note in noted])
        for name, of_length in (("", words > 0), (", 6 words at most", words <= SHORT_WORDS)):
            chosen = scores.notes[mine & of_length]
            row[kind + name] = {
                "n": len(chosen), "refused": _share(chosen, threshold),
                "in_doubt_or_refused": _share(chosen, doubt),
            }  # fmt: skip
    return row


def conversations_row(
    data: Path, weights: ActWeights, acts: Sequence[TextStates], reporter: Reporter
) -> dict[str, object]:
    """Return what the weights say of MemoryBank's turns, as writes of a tenant whose removed acts are `acts`.

    Args:
        data: Folder with memorybank/.
        weights: Fitted on none of this.
        acts: Of scenarios.
        reporter: For progress.
    """
    bank = json.loads((data / "memorybank" / "memory_bank_en.json").read_text(encoding="utf-8"))
    turns = {
        visible(said)
        for user in bank.values() for day in user["history"].values() for turn in day for said in turn.values()
    }  # fmt: skip
    keys = np.concatenate([weights.reading_of(act.windows[:1], act.passages).directions for act in acts])
    odds = np.array([
        float(weights.curve.log_odds(reading, reading.directions @ keys.T).max())
        for reading in (
            weights.reading_of(text.windows, text.passages) for text in states_of(sorted(turns), reporter)
        )
    ])  # fmt: skip
    return {
        "part": "MemoryBank", "n": len(odds), "refused": _share(odds, weights.curve.threshold_nats),
        "in_doubt_or_refused": _share(odds, weights.curve.doubt_nats),
    }  # fmt: skip


def states_of(texts: Sequence[str], reporter: Reporter) -> list[TextStates]:
    """Return each text's mean states, from the cache where it was read before."""
    folder = ensure(BACKBONE)
    windows = f"{WINDOW_TOKENS}-{PASSAGE_TOKENS}"
    path = cache_dir() / f"act_states-{folder_id(folder).replace('@', '-')}-{LAYER}-{READING}-{windows}.npz"
    known: dict[str, TextStates] = {}
    if path.is_file():
        with np.load(path) as data:
            parts = zip(
                *(np.split(data[kind], np.cumsum(data[f"{kind}_each"])[:-1]) for kind in ("windows", "passages")),
                strict=True,
            )
            known = {key: TextStates(*means) for key, means in zip(data["keys"].tolist(), parts, strict=True)}
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    new = sorted({(key, text) for key, text in zip(keys, texts, strict=True) if key not in known}, key=_length)
    if new:
        states = HiddenStates(folder)
        with reporter.stage("reading texts (0.5B)", len(new)) as progress:
            for start in range(0, len(new), 32):
                part = new[start : start + 32]
                for (key, _), tokens in zip(part, states.tokens([text for _, text in part]), strict=True):
                    known[key] = TextStates(
                        window_means(tokens).astype(np.float16), passage_means(tokens).astype(np.float16)
                    )
                progress.advance(len(part))
                if start % 2_048 == 0 or start + 32 >= len(new):
                    _keep(path, known)
    return [TextStates(known[key].windows.astype(np.float32), known[key].passages.astype(np.float32)) for key in keys]


def _keep(path: Path, known: dict[str, TextStates]) -> None:
    partial = path.with_suffix(".partial.npz")
    kinds = {
        "windows": [item.windows for item in known.values()],
        "passages": [item.passages for item in known.values()],
    }
    np.savez(
        partial, keys=np.array(list(known)),
        **{name: np.concatenate(rows) for name, rows in kinds.items()},
        **{f"{name}_each": np.array([len(part) for part in rows]) for name, rows in kinds.items()},
    )  # fmt: skip
    partial.replace(path)


def main() -> None:
    """Read, fit, report."""
    options = _options()
    reporter, found = Reporter(Console()), scenarios()
    remembered = notes()
    flat = states_of([text for scenario in found for text in scenario.texts], reporter)
    noted = list(zip(remembered, states_of([note.text for note in remembered], reporter), strict=True))
    each = HARMFUL + SAFE
    states = [flat[start : start + each] for start in range(0, len(flat), each)]
    parts = np.array([scenario.part for scenario in found])
    fit = Fit()
    scores = out_of_fold(found, states, noted, fit, reporter)
    threshold, doubt = (threshold_of(scores, share) for share in (options.most_false, options.most_doubted))
    curve = replace(scores.curve, threshold_nats=threshold, doubt_nats=doubt)
    config = {
        "backbone": folder_id(ensure(BACKBONE)), "layer": LAYER, "scenarios": len(found), "notes": len(noted),
        "most_false": options.most_false, "most_doubted": options.most_doubted, "fit": repr(fit), "curve": repr(curve),
    }  # fmt: skip
    command = "python -m benchmarks.act_reading" + (" --data DATA" if options.data is not None else "")
    results = ResultFile("act_reading", command, config, fresh=True)
    weights = fit_reader(found, states, noted, fit, curve)
    if options.write:
        weights.save(Path(__file__).parents[1] / "models" / "data" / ACTS_FILE)
    rows = [*rows_of(scores, parts, threshold, doubt), notes_row(scores, remembered, threshold, doubt)]
    if options.data is not None:
        acts = [texts[0] for texts in states[:: max(1, len(states) // STRANGERS)][:STRANGERS]]
        rows.append(conversations_row(options.data, weights, acts, reporter))
    for row in rows:
        results.add_row(row)
        reporter.say(json.dumps(row))


def _auc(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    scores = np.concatenate([higher.ravel(), lower.ravel()])
    there = ~np.isnan(scores)
    return round(auc(scores[there], (np.arange(len(scores)) < higher.size)[there]), 3)


def _share(scores: NDArray[np.float64], threshold: float) -> float | None:
    there = scores[~np.isnan(scores)]
    return round(float((there >= threshold).mean()), 4) if there.size else None


def _length(item: tuple[str, str]) -> int:
    return len(item[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with memorybank/")
    parser.add_argument("--write", action="store_true", help="write the packaged weights")
    parser.add_argument("--most-false", type=float, default=0.01, help="share of safe answers that may be refused")
    parser.add_argument("--most-doubted", type=float, default=0.1, help="share of them that may be asked about twice")
    return parser.parse_args()


if __name__ == "__main__":
    main()
