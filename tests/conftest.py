"""For all tests: property tests draw the same examples every time, and have no wall-clock deadline.

A check of one tree then always says the same. To look for what those examples miss, draw others, and more of them:
`pytest -m hypothesis --hypothesis-profile=explore`.
"""

from __future__ import annotations

from hypothesis import Phase, settings

# Explaining a failure takes a minute under Python 3.11's tracing, which a test's time limit would end.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)

settings.register_profile("memaudit", deadline=None, derandomize=True, phases=PHASES)
settings.register_profile("explore", deadline=None, max_examples=1_000, phases=PHASES)
settings.load_profile("memaudit")
