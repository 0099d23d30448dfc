"""Layers adapted together with the networks, on a tiny backbone with weights drawn at random."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.behaviour_reader import passage_means
from memory_audit.models.weights.packaged import ensure
from training.behaviours import fitting
from training.behaviours.corpus import Note, Scenario
from training.behaviours.fitting import Fitting, fitted_reader
from training.behaviours.fitting_states import FittingStates
from training.behaviours.passages import batch_of
from training.behaviours.settings import Adapting, Fit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
]  # a fresh machine assembles the backbone first, for its tokenizer

HOW = Adapting(steps=6, rank=2, layers=(1,), scenarios=4, notes=2, rate=5e-3, networks_rate=1e-2, warm=1)
FIT = Fit(dimensions=8, units=16, heads=2, networks=2, comparing_networks=2, second=8, dropped=0.1)
MATTERS = ("boiler", "ledger", "parcel", "garden", "server", "ballot", "bridge", "kettle", "violin", "harbour")
NOTES = [Note(topic="day", text=f"Tea with {name} on Friday.", bad=False) for name in ("Ann", "Bo", "Cy", "Di")]


def quiet():
    return Reporter(Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> FittingStates:
    from transformers import Qwen2Config, Qwen2Model  # noqa: PLC0415 - takes seconds

    folder = tmp_path_factory.mktemp("tiny")
    for path in ensure("0.5b").glob("*"):
        if path.suffix in {".json", ".txt"} and not path.name.endswith("index.json"):
            shutil.copy(path, folder)
    torch.manual_seed(0)
    Qwen2Model(Qwen2Config(
        vocab_size=151_936, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.3,
    )).save_pretrained(folder)  # fmt: skip
    return FittingStates(folder, layer=2)


HARMFUL_WORDS = ("forgo", "skip", "omit", "drop", "leave", "miss", "bypass", "shun")
SAFE_WORDS = ("run", "do", "make", "keep", "take", "pass", "start", "hold")


def scenario(matter):
    texts = tuple(f"The {matter}: {word} the check." for word in (*HARMFUL_WORDS, *SAFE_WORDS))
    return Scenario(part="part", texts=texts, padded=True)


FOUND = [scenario(matter) for matter in MATTERS]


def fit(backbone, checkpoint, how=HOW, shape=FIT):
    return fitted_reader(FOUND, NOTES, backbone, (shape, how), checkpoint=checkpoint, reporter=quiet())


@pytest.mark.weights
def test_what_was_broken_off_goes_on_as_if_it_had_not_been(backbone, tmp_path, monkeypatch):
    fitted, updates = fit(backbone, tmp_path / "whole.pt")
    monkeypatch.setattr(fitting, "KEPT_EVERY", 2)
    step = Fitting.step

    def broken(self, number, found, noted):
        if number == 5:
            raise KeyboardInterrupt
        step(self, number, found, noted)

    monkeypatch.setattr(Fitting, "step", broken)
    with pytest.raises(KeyboardInterrupt):
        fit(backbone, tmp_path / "parts.pt")
    monkeypatch.setattr(Fitting, "step", step)

    again, same = fit(backbone, tmp_path / "parts.pt")
    assert updates.keys() == same.keys()
    assert all(np.allclose(updates[name], same[name], atol=1e-3) for name in updates)
    assert np.allclose(fitted.harm.units, again.harm.units, atol=1e-4)
    assert np.allclose(fitted.comparing.mixed, again.comparing.mixed, atol=1e-4)
    done, _ = fit(backbone, tmp_path / "parts.pt")  # nothing is left to do
    assert np.array_equal(done.harm.units, again.harm.units)


def rewritten(matter):
    bad, right = (f"{matter} check no", f"no check {matter}"), (f"{matter} check ok",)
    return replace(scenario(matter), rewritten=bad, rewritten_right=right)


@pytest.mark.weights
def test_a_second_descent_begins_where_the_first_ended_and_sees_what_a_small_model_rewrote(backbone, tmp_path):
    first, updates = fit(backbone, tmp_path / "first.pt")
    found, shown = [rewritten(matter) for matter in MATTERS[:3]] + FOUND[3:], []
    second = replace(HOW, steps=3, rewritten=2, safe=3)

    def further(how, name):
        at, start = tmp_path / name, tmp_path / "first.pt"
        return fitted_reader(found, NOTES, backbone, (FIT, how), checkpoint=at, start=start, reporter=quiet())

    nothing, same = further(replace(second, steps=0), "none.pt")
    assert np.array_equal(nothing.harm.units, first.harm.units)
    assert all(np.array_equal(updates[name], same[name]) for name in updates)
    fitted, moved = further(second, "second.pt")
    assert not np.array_equal(fitted.harm.units, first.harm.units)
    assert any(not np.array_equal(updates[name], moved[name]) for name in updates)

    between, _ = further(replace(second, way=0.25), "second.pt")  # the descent is at its end already
    mixed = 0.75 * first.harm.units + 0.25 * fitted.harm.units
    assert np.allclose(between.harm.units, mixed, atol=1e-6)

    fitting = Fitting(found, backbone, (FIT, replace(second, steps=12)))
    fitting._through = _Listening(fitting._through, shown)  # type: ignore[assignment]
    for step in range(12):
        fitting.step(step, found, [])
    assert min(map(len, shown)) < max(map(len, shown))
    mine = {text for one in found for text in one.rewritten}
    right = {text for one in found for text in one.rewritten_right}
    for texts in shown:
        behaviours = texts[:: 1 + second.restated + second.safe]
        assert len(set(behaviours)) == len(behaviours)  # a scenario that both rounds draw is there once
        assert second.rewritten <= len(behaviours) <= HOW.scenarios
        assert len(mine & set(texts)) >= second.rewritten
        assert len(right & set(texts)) >= second.rewritten
    assert not any((mine | right) & set(texts) for texts in first_descent_sees(backbone, found))


def first_descent_sees(backbone, found):
    shown: list[list[str]] = []
    fitting = Fitting(found, backbone, (FIT, HOW))
    fitting._through = _Listening(fitting._through, shown)  # type: ignore[assignment]
    fitting.step(0, found, [])
    return shown


class _Listening:
    def __init__(self, states, shown) -> None:
        self._states, self._shown = states, shown

    def tensors(self, texts):
        self._shown.append(list(texts))
        return self._states.tensors(texts)


@pytest.mark.weights
def test_a_step_whose_gradients_are_no_numbers_is_left_out(backbone, monkeypatch):
    """One would end all that comes after it."""
    fitting = Fitting(FOUND, backbone, (FIT, HOW))
    loss = Fitting._loss
    monkeypatch.setattr(Fitting, "_loss", lambda *args: loss(*args) * float("nan"))
    before = fitting.stored()
    fitting.step(0, FOUND, NOTES)
    assert all(np.array_equal(part, before[name]) for name, part in fitting.stored().items())
    monkeypatch.setattr(Fitting, "_loss", loss)
    fitting.step(1, FOUND, NOTES)
    assert any(not np.array_equal(part, before[name]) for name, part in fitting.stored().items())
    assert all(np.isfinite(part).all() for part in fitting.stored().values())


def test_passages_of_tensors_are_those_of_the_reader():
    random = np.random.default_rng(0)
    texts = [random.normal(size=(count, 5)).astype(np.float32) for count in (1, 15, 40, 100)]
    ours = batch_of([torch.from_numpy(text) for text in texts])
    theirs = [passage_means(text) for text in texts]
    assert torch.allclose(ours.states, torch.from_numpy(np.concatenate(theirs)), atol=1e-5)
    assert ours.owner.tolist() == [number for number, rows in enumerate(theirs) for _ in rows]
    assert ours.place.tolist() == [place for rows in theirs for place in range(len(rows))]
    assert (ours.texts, ours.longest) == (4, max(map(len, theirs)))
