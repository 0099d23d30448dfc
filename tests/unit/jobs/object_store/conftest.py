"""A bucket at a real server, and machines that each have a cache of their own."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from memory_audit.jobs.store.object_store import place_of
from tests.object_stores import rclone, seaweedfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory):
    """SeaweedFS with the bucket `shared`."""
    with seaweedfs(tmp_path_factory.mktemp("seaweed")) as server:
        server.make_bucket("shared")
        yield server


@pytest.fixture(scope="session")
def ignoring(tmp_path_factory):
    """Rclone with the bucket `shared`."""
    with rclone(tmp_path_factory.mktemp("rclone")) as server:
        server.make_bucket("shared")
        yield server


@pytest.fixture
def client(monkeypatch, folder):
    """Be the client of a server, from a machine with an empty cache."""

    def use(environment: dict[str, str], machine: str = "here") -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / f"cache-{machine}"))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return use


@pytest.fixture
def address(seaweed, client):
    """Address of a store that is not made yet."""
    client(seaweed.environment)
    return f"s3://shared/{secrets.token_hex(8)}"


@pytest.fixture
def machine(seaweed, client) -> Callable[[str, str], Path]:
    """Be another machine, and return the folder that mirrors an address there."""

    def be(name: str, address: str) -> Path:
        client(seaweed.environment, name)
        return place_of(address)

    return be
