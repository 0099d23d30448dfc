"""For all tests: property tests have no wall-clock deadline, since a busy machine is not a wrong result."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("memaudit", deadline=None)
settings.load_profile("memaudit")
