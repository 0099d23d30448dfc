"""Every decoder of the fuzz table, with hypothesis: it takes its seeds, and refuses the rest with its own error."""

import random
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.systems.fuzz.target import NotCanonicalError, Target, same
from benchmarks.systems.fuzz.targets import targets
from memory_audit.errors import UsageError, VerificationError

TABLE = targets()
NAMES = [target.name for target in TABLE]
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True)
def _patterns_may_be_odd():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `re`, about patterns that nobody would write
        yield


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("target", TABLE, ids=NAMES)
def test_a_decoder_takes_its_seeds(target):
    for seed in target.seeds:
        target.decode(target.wrap(seed))


@pytest.mark.parametrize("target", TABLE, ids=NAMES)
@few
@given(data=st.binary(max_size=400))
def test_any_bytes_are_refused_with_the_decoders_own_error_or_taken(target, data):
    target.accepts(data)
    target.accepts(target.wrap(data))


@pytest.mark.parametrize("target", TABLE, ids=NAMES)
@few
@given(seed=st.integers(0, 2**32))
def test_mutated_seeds_are_refused_with_the_decoders_own_error_or_taken(target, seed):
    target.accepts(target.make(random.Random(seed)))


@pytest.mark.parametrize("target", TABLE, ids=NAMES)
def test_the_same_draws_make_the_same_input(target):
    assert target.make(random.Random(7)) == target.make(random.Random(7))


def fail(error):
    def decode(data):
        del data
        raise error

    return Target(name="x", decode=decode, seeds=(b"",), raises=UsageError)


def test_a_foreign_exception_goes_on_and_so_does_an_error_of_another_kind():
    assert not fail(UsageError("no")).accepts(b"")
    for error in (ValueError("no"), VerificationError("no"), NotCanonicalError("no")):
        with pytest.raises(type(error)):
            fail(error).accepts(b"")


def test_a_decoded_value_with_another_spelling_is_a_finding():
    same(b"a", b"a")
    with pytest.raises(NotCanonicalError, match="which is written"):
        same(b"a", b"b")
