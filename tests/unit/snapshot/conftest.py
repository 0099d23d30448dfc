"""What stores lie on."""

import pytest


@pytest.fixture
def shared_disk(monkeypatch):
    """Every folder lies on a file system that other machines may write to."""
    monkeypatch.setattr("memory_audit.provenance.folder_lock.OF_ONE_MACHINE", frozenset())
