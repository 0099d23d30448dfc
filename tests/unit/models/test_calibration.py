"""Calibrations lie beside the weights, and are read strictly."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.behaviour import BehaviourCurve
from memory_audit.models import calibration
from memory_audit.models.activations.behaviour_cascade import JointCurve, cascade_calibration
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, read_weights
from memory_audit.models.calibration import read_calibration, read_record, record_of

JOINT = {"restated_slopes": [0.5, 1], "harm_slopes": [0.0, 0.25], "bias": -1, "open_nats": -3.0}
CURVE = {"restated_slope": 1.0, "harm_slope": 0.0, "bias": 0.0, "threshold_nats": 2.0}


@pytest.fixture
def write(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(calibration, "files", lambda _: tmp_path)
    return (tmp_path / "data" / "one.json").write_text


def test_records_become_what_they_are_named_for(write):
    write(json.dumps({"joint": JOINT, "curve": CURVE}))
    joint, curve = read_calibration("one.json", joint=JointCurve, curve=BehaviourCurve)
    assert joint == JointCurve(restated_slopes=(0.5, 1), harm_slopes=(0.0, 0.25), bias=-1, open_nats=-3.0)
    assert (curve.threshold_nats, curve.fused_nats) == (2.0, math.inf)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bias": None}, "'bias' is None"), ({"bias": True}, "'bias' is True"), ({"bias": "1"}, "'bias' is '1'"),
        ({"bias": [1.0]}, "'bias' is"), ({"harm_slopes": 1.0}, "'harm_slopes' is 1.0"),
        ({"harm_slopes": [1.0, "2"]}, "'harm_slopes' is"), ({"more": 1.0}, "'more'"),
    ],
)  # fmt: skip
def test_what_is_no_curve_is_refused(changed, message):
    with pytest.raises(UsageError, match=f"^here: .*{message}"):
        record_of(JointCurve, JOINT | changed, "here")


def test_a_missing_field_or_record_is_refused(write):
    with pytest.raises(UsageError, match="missing 1 required keyword-only argument: 'bias'"):
        record_of(JointCurve, {name: value for name, value in JOINT.items() if name != "bias"}, "here")
    for held in ({}, {"curve": CURVE, "more": {}}, {"curve": 1}):
        write(json.dumps(held))
        with pytest.raises(UsageError, match=r"^one\.json: "):
            read_calibration("one.json", curve=BehaviourCurve)


def test_a_text_is_a_record_too(write):
    write(json.dumps({"name": "n", "curve": CURVE}))
    assert read_calibration("one.json", name=str, curve=BehaviourCurve)[0] == "n"
    write(json.dumps({"name": 1}))
    with pytest.raises(UsageError, match=r"^one\.json: name: not text$"):
        read_calibration("one.json", name=str)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": 1e999}'])
def test_what_is_no_object_is_refused(write, text):
    write(text)
    with pytest.raises(UsageError, match=r"^one\.json: "):
        read_record("one.json")


def test_a_file_that_is_not_there_is_one_line(write):
    with pytest.raises(UsageError, match=r"^two\.json: No such file or directory; install MemAudit again$"):
        read_record("two.json")


@pytest.mark.parametrize(
    ("source", "fitted"),
    [
        (FIRST, (0.54559297, 0.11867074, 0.5651169, 2.397, -0.658)),
        (SECOND, (0.47854978, 0.09661164, 0.69049617, 2.032, -1.543)),
    ],
)
def test_packaged_curves_are_those_that_were_fitted_for_the_weights(source, fitted):
    weights, _ = read_weights(source)
    assert [asdict(weights.curve)[name] for name in (*CURVE, "doubt_nats")] == pytest.approx(fitted, rel=1e-6)


def test_a_write_is_doubted_before_it_is_refused():
    joint, curve = cascade_calibration()
    assert joint.open_nats <= curve.doubt_nats < curve.threshold_nats
