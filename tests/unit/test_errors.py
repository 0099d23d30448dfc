"""Every error of MemAudit has an exit code of the documented table."""

from __future__ import annotations

import pickle

import pytest

from memory_audit import errors
from memory_audit.errors import AuditError

EXIT_CODES = {
    "AuditError": 3,
    "UsageError": 2,
    "EntryError": 2,
    "EventError": 2,
    "ScoringError": 2,
    "IncompleteError": 3,
    "BudgetError": 3,
    "ModelError": 3,
    "AnswerError": 3,
    "ModelLostError": 3,
    "PrefixUnsupportedError": 3,
    "PromptTooLongError": 3,
    "VerificationError": 4,
    "StalePlanError": 5,
    "HeldError": 6,
    "WriteRefusedError": 1,
}


def test_the_tree_is_what_is_exported():
    assert set(errors.__all__) == set(EXIT_CODES)


@pytest.mark.parametrize("name", EXIT_CODES)
def test_exit_codes_are_the_documented_ones(name):
    kind = getattr(errors, name)
    assert issubclass(kind, AuditError)
    assert kind.exit_code == EXIT_CODES[name]


@pytest.mark.parametrize("name", EXIT_CODES)
def test_errors_survive_the_way_between_processes(name):
    error = getattr(errors, name)("one line")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy)) == (type(error), "one line")


def test_what_the_user_can_correct_is_not_what_can_be_resumed():
    assert not issubclass(errors.EventError, errors.IncompleteError)
    assert issubclass(errors.ModelError, errors.IncompleteError)
    assert issubclass(errors.EntryError, errors.UsageError)
