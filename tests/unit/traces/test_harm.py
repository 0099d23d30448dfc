"""Which traces are harmful, by the rules and files of a user."""

import pytest

from memory_audit.errors import UsageError
from memory_audit.traces.harm import Label, label_of, parse_rule, read_labels
from memory_audit.traces.records import Score


@pytest.mark.parametrize(
    ("rule", "score", "holds"),
    [
        ("harm>=0.5", Score(name="harm", value=0.5), True),
        ("harm > 0.5", Score(name="harm", value=0.5), False),
        ("quality<2", Score(name="quality", value=1), True),
        ("quality<2", Score(name="harm", value=1), False),
        ("verdict=harmful", Score(name="verdict", label="Harmful"), True),
        ("verdict=harmful", Score(name="verdict", label="fine", value=0), False),
        ("flagged=true", Score(name="flagged", value=1.0, label="True"), True),
        ("flagged=true", Score(name="flagged", value=1.0), True),
        ("flagged>=0.5", Score(name="flagged", label="true"), True),
        ("harm>=0.5", Score(name="harm", label="unknown"), False),
        ("harm>=0.5", Score(name="harm", value=float("nan")), False),
        ("my score: v2=bad one", Score(name="my score: v2", label="bad one"), True),
    ],
)
def test_a_rule_holds_for_scores_of_its_name_that_meet_the_threshold(rule, score, holds):
    assert parse_rule(rule, "--harm").holds(score) == holds


@pytest.mark.parametrize("text", ["", "harm", ">=1", "harm>=", "harm>=much", "a" * 300 + "=1"])
def test_what_is_no_rule_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match=r"--harm is '.*, expected a score and a threshold"):
        parse_rule(text, "--harm")


def test_harm_goes_before_benign_and_no_score_is_neither():
    harmful, benign = [parse_rule("harm>=0.5", "")], [parse_rule("ok=true", "")]
    both = [Score(name="ok", label="true"), Score(name="harm", value=0.7)]
    assert label_of(both, harmful, benign) == Label(harm="harmful", source="score harm: 0.7")
    assert label_of(both[:1], harmful, benign) == Label(harm="benign", source="score ok: true")
    assert label_of([Score(name="harm", value=0.2)], harmful, benign) is None


def test_a_csv_file_names_traces_labels_and_tickets():
    lines = ["trace_id,label,source", "0xABCDEF0123456789ABCDEF0123456789,,ticket 7", "t-2,benign,"]
    assert read_labels(lines, "l.csv") == {
        "abcdef0123456789abcdef0123456789": Label(harm="harmful", source="ticket 7"),
        "t-2": Label(harm="benign", source="l.csv"),
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: expected a header with trace_id"),
        (["id", "t"], "line 1: expected a header with trace_id"),
        (["trace_id,label", "t,bad"], "line 2: expected a trace id, and harmful or benign"),
        (["trace_id,label", ",harmful"], "line 2: expected a trace id"),
        (["trace_id,label", "t,harmful", "t,benign"], "line 3: trace 't' has two labels"),
        (["trace_id", '"a'], "no CSV file"),
    ],
)
def test_a_csv_file_that_is_wrong_is_told_by_line(lines, message):
    with pytest.raises(UsageError, match=message):
        read_labels(lines, "l.csv")
