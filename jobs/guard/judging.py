"""A guard that judges memories that are there already: it refuses none for what it said of another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.guard.decide.settings import GuardMode
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.jobs.store.store_session import StoreSession

__all__ = ["open_judging_guard"]

PATIENCE_S = 3_600.0
"""A check waits for the models to load, and for all of their answers."""


@contextmanager
def open_judging_guard(
    session: StoreSession, mode: str | None, backbone: str, backbone_key_env: str | None, embedder: str
) -> Iterator[GuardedStore | None]:
    """Open a guard that holds refused records against no others; None where nothing is to be read."""
    if mode is None:
        yield None
        return
    from memory_audit.jobs.guard.open_guard import open_guard  # noqa: PLC0415 - the model layer

    settings = GuardSettings(
        mode=cast("GuardMode", mode), distrust_after=0, alarm_after=0, model_timeout_s=PATIENCE_S
    )  # fmt: skip
    snapshot = session.snapshot
    with open_guard(
        snapshot.path, snapshot.trust, settings=settings, backbone=backbone, backbone_key_env=backbone_key_env,
        embedder=embedder, pin=snapshot.pin(), reporter=Reporter(terminal(stderr=True)),
    ) as guarded:  # fmt: skip
        yield guarded
