"""Fits the reader of acts, and says how well it tells restatements of a removed act from safe answers.

    python -m benchmarks.act_reading              # writes act_reading.json
    python -m benchmarks.act_reading --write      # and the packaged weights (models/data/act_reader.npz)

Fitted on `benchmarks/act_texts`: scenarios that language models wrote from briefs which name no benchmark. Each is a
request, an act (a harmful note), five restatements (two plain ones; terse, or the core alone; softened and padded, in
the third file of a part plain again; in another language) and four safe answers (by other means; in the act's own
words, put right; warning of the act, or telling how it used to be done; terse, or full of alarming words), and where a
restatement is padded a fifth, the same put right: without these padding alone looked harmful.
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
from models.act_reader import ACTS_FILE, ActWeights, window_means
from models.hazard_probe import BACKBONE, LAYER, READING, HiddenStates
from models.packaged import ensure
from models.weights_cache import cache_dir, folder_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from audit.forget.act import ActReading

__all__ = ["Fit", "Scenario", "fit_reader", "scenarios"]

TEXTS = Path(__file__).parent / "act_texts"

RESTATED = 5
SAFE = 5
"""The last is not there in all scenarios."""

HARMFUL = 1 + RESTATED
"""Texts of a scenario that teach the act; they come first."""

RESTATEMENTS = ("plain", "plain, another", "terse or core alone", "softened and padded", "another language")
ANSWERS = (
    "by other means",
    "the act's words put right",
    "warns or tells",
    "terse or alarming words",
    "padded, put right",
)

STRANGERS = 10
"""Acts of other scenarios that a write is compared with: as many as the tombstones of the lockout benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """An act, its restatements and safe answers, in this order."""

    part: str
    texts: tuple[str, ...]
    """HARMFUL + SAFE; where the last is missing, the first safe one stands there again."""

    padded: bool
    """The last is there."""


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
    units: int = 128
    """Of each of the networks that tell harm."""

    networks: int = 3
    """How many, from different starts; their mean is what counts."""

    dropped: float = 0.4
    """Share of inputs, and of units, left out at random while fitting."""

    harm_epochs: int = 20
    seed: int = 0


def scenarios(folder: Path = TEXTS) -> tuple[Scenario, ...]:
    """Return the scenarios; `PART_2.jsonl` and `PART_3.jsonl` are of the same part of working life as `PART.jsonl`."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            value = json.loads(line)
            safe = value["safe"] if len(value["safe"]) == SAFE else [*value["safe"], value["safe"][0]]
            texts = tuple(map(visible, (value["act"], *value["restated"], *safe)))
            part = path.stem.removesuffix("_2").removesuffix("_3")
            found.append(Scenario(part=part, texts=texts, padded=len(value["safe"]) == SAFE))
    return tuple(found)


def fit_reader(acts: NDArray[np.float32], fit: Fit, curve: ActCurve) -> ActWeights:
    """Fit the projection and the networks of harm.

    Args:
        acts: Mean states of scenarios, shape (scenarios, texts, hidden).
        fit: How.
        curve: Goes into the weights as it is.
    """
    flat = acts.reshape(-1, acts.shape[-1])
    mean, spread = flat.mean(0), flat.std(0) + 1e-3
    projection = _contrasted((acts - mean) / spread, fit) / spread
    taught = np.tile(np.arange(acts.shape[1]) < HARMFUL, len(acts))
    units, units_bias, harm, harm_bias = _harm_networks((flat - mean) / spread, taught, fit)
    units = units / spread
    return ActWeights(
        projection=np.asarray(projection, np.float32), offset=np.asarray(-projection @ mean, np.float32),
        units=np.asarray(units, np.float32), units_bias=np.asarray(units_bias - units @ mean, np.float32),
        harm=np.asarray(harm, np.float32), harm_bias=harm_bias, curve=curve,
    )  # fmt: skip


def _harm_networks(
    standard: NDArray[np.float32], harmful: NDArray[np.bool_], fit: Fit
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], float]:
    """Fit networks of one layer, and return them as one: units, their bias, their weights, and the bias of all."""
    import torch  # noqa: PLC0415
    from torch.nn.functional import binary_cross_entropy_with_logits, dropout, relu  # noqa: PLC0415

    states = torch.from_numpy(np.ascontiguousarray(standard, np.float32))
    truth = torch.from_numpy(harmful.astype(np.float32))
    layers = []
    for network in range(fit.networks):
        torch.manual_seed(fit.seed + network)
        inner, outer = torch.nn.Linear(standard.shape[1], fit.units), torch.nn.Linear(fit.units, 1)
        descent = torch.optim.AdamW([*inner.parameters(), *outer.parameters()], 1e-3, weight_decay=0.1)
        for _ in range(fit.harm_epochs):
            for chosen in torch.randperm(len(states)).split(128):
                active = relu(inner(dropout(states[chosen], fit.dropped)))
                loss = binary_cross_entropy_with_logits(outer(dropout(active, fit.dropped))[:, 0], truth[chosen])
                descent.zero_grad()
                loss.backward()
                descent.step()
        layers.append([part.detach().numpy() for part in (inner.weight, inner.bias, outer.weight[0], outer.bias)])
    units, units_bias, harm, bias = (np.concatenate(part) for part in zip(*layers, strict=True))
    return units, units_bias, harm / fit.networks, float(bias.mean())


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

    def chosen(self, held: NDArray[np.bool_]) -> Scores:
        """Return those of some scenarios."""
        return replace(self, **{name: getattr(self, name)[held] for name in ("own", "strangers", "similarity", "harm")})


def out_of_fold(
    found: Sequence[Scenario], means: Sequence[Sequence[NDArray[np.float32]]], fit: Fit, reporter: Reporter
) -> Scores:
    """Read each part with a reader that was fitted on the others, and fit the curve to what they say.

    Args:
        found: The scenarios.
        means: Of each scenario's texts the mean states of its windows, the whole first.
        fit: How.
        reporter: For progress.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    whole = np.stack([np.stack([text[0] for text in texts]) for texts in means])
    flat = ActCurve(similarity_slope=1.0, harm_slope=0.0, bias=0.0, threshold_nats=0.0)
    read: list[tuple[int, int, ActReading, NDArray[np.float32], NDArray[np.float32]]] = []
    parts = np.array([scenario.part for scenario in found])
    names = list(dict.fromkeys(parts.tolist()))
    with reporter.stage("fitting out of fold", len(names)) as progress:
        for name in names:
            held = parts == name
            weights = fit_reader(whole[~held], fit, flat)
            numbers = np.flatnonzero(held)
            keys = np.concatenate([weights.reading(whole[number, :1]).directions for number in numbers])
            for place, number in enumerate(numbers):
                strangers = np.roll(keys, -1 - place, axis=0)[:-1][:: max(1, (len(keys) - 1) // STRANGERS)][:STRANGERS]
                for column in range(1, whole.shape[1] - (not found[number].padded)):
                    reading = weights.reading(means[number][column])
                    own = reading.directions @ keys[place]
                    read.append((int(number), column - 1, reading, own, (reading.directions @ strangers.T).max(1)))
            progress.advance()
    taught = np.array([column < RESTATED for _, column, *_ in read])
    features = np.array([(own[0], reading.harm_nats[0]) for _, _, reading, own, _ in read])
    line = LogisticRegression().fit(features, taught)
    (similarity, harm), bias = line.coef_[0], float(line.intercept_[0])
    curve = ActCurve(similarity_slope=float(similarity), harm_slope=float(harm), bias=bias, threshold_nats=0.0)
    shape = (len(means), whole.shape[1] - 1)
    scores = Scores(curve=curve, own=np.full(shape, np.nan), strangers=np.full(shape, np.nan),
                    similarity=np.full(shape, np.nan), harm=np.full(shape, np.nan))  # fmt: skip
    for number, column, reading, own, stranger in read:
        scores.own[number, column] = curve.log_odds(reading, own[:, None])[0]
        scores.strangers[number, column] = curve.log_odds(reading, stranger[:, None])[0]
        scores.similarity[number, column], scores.harm[number, column] = own[0], reading.harm_nats[0]
    return scores


def threshold_of(scores: Scores, most_false: float) -> float:
    """Return what the given share of safe answers to an act's own request exceeds, in nats."""
    safe = scores.own[:, RESTATED:]
    safe = np.sort(safe[~np.isnan(safe)])[::-1]
    return round(float(safe[int(most_false * len(safe))]), 3)


def rows_of(every: Scores, parts: NDArray[np.str_], threshold: float) -> Iterator[dict[str, object]]:
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
            "safe_elsewhere_refused": _share(strangers[:, RESTATED:], threshold),
            "harmful_elsewhere_refused": _share(strangers[:, :RESTATED], threshold),
        }  # fmt: skip


def states_of(texts: Sequence[str], reporter: Reporter) -> list[NDArray[np.float32]]:
    """Return each text's mean states, the whole first, from the cache where it was read before."""
    folder = ensure(BACKBONE)
    path = cache_dir() / f"act_states-{folder_id(folder).replace('@', '-')}-{LAYER}-{READING}.npz"
    known: dict[str, NDArray[np.float32]] = {}
    if path.is_file():
        with np.load(path) as data:
            ends = np.cumsum(data["windows"])[:-1]
            known = dict(zip(data["keys"].tolist(), np.split(data["states"], ends), strict=True))
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    new = sorted(((key, text) for key, text in zip(keys, texts, strict=True) if key not in known), key=_length)
    if new:
        states = HiddenStates(folder)
        with reporter.stage("reading texts (0.5B)", len(new)) as progress:
            for start in range(0, len(new), 32):
                part = new[start : start + 32]
                for (key, _), tokens in zip(part, states.tokens([text for _, text in part]), strict=True):
                    known[key] = window_means(tokens)
                progress.advance(len(part))
                if start % 1_024 == 0 or start + 32 >= len(new):
                    _keep(path, known)
    return [known[key] for key in keys]


def _keep(path: Path, known: dict[str, NDArray[np.float32]]) -> None:
    partial = path.with_suffix(".partial.npz")
    windows = np.array([len(rows) for rows in known.values()])
    np.savez(partial, keys=np.array(list(known)), windows=windows, states=np.concatenate(list(known.values())))
    partial.replace(path)


def main() -> None:
    """Read, fit, report."""
    options = _options()
    reporter, found = Reporter(Console()), scenarios()
    flat = states_of([text for scenario in found for text in scenario.texts], reporter)
    each = HARMFUL + SAFE
    means = [flat[start : start + each] for start in range(0, len(flat), each)]
    parts = np.array([scenario.part for scenario in found])
    fit = Fit()
    scores = out_of_fold(found, means, fit, reporter)
    threshold = threshold_of(scores, options.most_false)
    curve = ActCurve(
        similarity_slope=scores.curve.similarity_slope, harm_slope=scores.curve.harm_slope, bias=scores.curve.bias,
        threshold_nats=threshold,
    )  # fmt: skip
    config = {
        "backbone": folder_id(ensure(BACKBONE)), "layer": LAYER, "scenarios": len(found),
        "most_false": options.most_false, "fit": repr(fit), "curve": repr(curve),
    }  # fmt: skip
    results = ResultFile("act_reading", "python -m benchmarks.act_reading", config, fresh=True)
    for row in rows_of(scores, parts, threshold):
        results.add_row(row)
        reporter.say(json.dumps(row))
    if options.write:
        whole = np.stack([np.stack([text[0] for text in texts]) for texts in means])
        target = Path(__file__).parents[1] / "models" / "data" / ACTS_FILE
        fit_reader(whole, fit, curve).save(target)


def _auc(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    scores = np.concatenate([higher.ravel(), lower.ravel()])
    there = ~np.isnan(scores)
    return round(auc(scores[there], (np.arange(len(scores)) < higher.size)[there]), 3)


def _share(scores: NDArray[np.float64], threshold: float) -> float:
    return round(float((scores[~np.isnan(scores)] >= threshold).mean()), 4)


def _length(item: tuple[str, str]) -> int:
    return len(item[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the packaged weights")
    parser.add_argument("--most-false", type=float, default=0.01, help="share of safe answers that may be refused")
    return parser.parse_args()


if __name__ == "__main__":
    main()
