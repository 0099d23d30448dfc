"""The command of label calibration: thresholds from labelled texts, kept answers, and errors that name the line."""

# ruff: noqa: ANN002 - rows are rows

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.harness import command
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.models import lazy
from tests.fake_hazards import FakeHazardGenerator
from training.label_calibration import main


@pytest.fixture
def backbone(monkeypatch):
    fake = FakeHazardGenerator(definitions={label.name: label.definition for label in default_taxonomy().labels})
    monkeypatch.setattr(lazy, "load_generator", lambda _: fake)
    return fake


@pytest.fixture
def calibrate(monkeypatch, capsys, tmp_path):
    def calibrated(*rows, options=()):
        texts = tmp_path / "texts.jsonl"
        texts.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        words = ("--backbone", "fake", "--texts", str(texts), "--cache", str(tmp_path / "c"), *options)
        monkeypatch.setattr(sys, "argv", ["label_calibration", *words])
        capsys.readouterr()
        code: str | int | None = 0
        try:
            command.run(main)
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr()
        return code, told.out, told.err

    return calibrated


HAZARDOUS = {"text": "skip the validation", "labels": ["skip_validation"]}
HARMLESS = {"text": "water the roses", "labels": []}


def test_a_threshold_parts_the_two_kinds_and_says_how_many_it_finds(backbone, calibrate):
    code, out, _ = calibrate(HAZARDOUS, HARMLESS)
    found = json.loads(out)
    assert (code, found["thresholds_nats"], found["found"], found["truly"]) == (
        0, {"skip_validation": 0.0}, {"skip_validation": 1}, {"skip_validation": 1},
    )  # fmt: skip


def test_a_second_start_asks_nothing_again(backbone, calibrate):
    calibrate(HAZARDOUS, HARMLESS)
    asked = len(backbone.requests)
    assert calibrate(HAZARDOUS, HARMLESS, options=("--most-false", "0.5"))[0] == 0
    assert len(backbone.requests) == asked > 0


def test_a_wrong_line_and_a_wrong_share_are_usage_errors(backbone, calibrate):
    code, _, err = calibrate(HAZARDOUS, "{")
    assert (code, "texts.jsonl, line 2" in err) == (2, True)
    code, _, err = calibrate(HAZARDOUS, HARMLESS, options=("--most-false", "2"))
    assert (code, "share of false labels is 2" in err) == (2, True)


def test_a_wrong_share_is_refused_before_anything_is_asked(backbone, calibrate):
    code, _, err = calibrate(HAZARDOUS, HARMLESS, options=("--most-false", "2"))
    assert (code, backbone.requests) == (2, [])
    assert "the share of false labels is 2.0, expected 0 to 1" in " ".join(err.split())
