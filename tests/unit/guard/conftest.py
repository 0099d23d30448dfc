"""Guards of the tests in this folder."""

# ruff: noqa: ANN002, ANN003 - what the tests pass is passed on

import pytest

from tests.unit.guard.blocked import guard


@pytest.fixture
def made():
    """Make guards, and close them all."""
    guards = []

    def make(*arguments, **options):
        guards.append(guard(*arguments, **options))
        return guards[-1]

    yield make
    for one in guards:
        one.close()
