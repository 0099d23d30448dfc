"""`memaudit redate`: a store that was dated by a wrong clock. A dry run unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from memory_audit.jobs.cli.store import DEFAULT_KEYS, Json, Keys, PinFile, Store, print_json, print_lines
from memory_audit.jobs.clock import as_utc, now_ms, publisher_ms
from memory_audit.jobs.store_session import check_pin_place, known_pin, remember
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.publishing.redate import redate as set_right
from memory_audit.snapshot.reader import open_snapshot

__all__ = ["redate"]


def redate(
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Really publish; without it, only show what would be.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Date a store anew that was dated by a wrong clock.

    Publishes the same memories as the next version, dated by this machine's clock: make sure that it is right. A store
    that was not published to for two years needs it too. Takes the log key. Changes nothing unless --apply is given.
    """
    now = publisher_ms(store) if apply else now_ms()
    keyring = load_keyring(keys)
    if apply:
        check_pin_place(pin)
    known = known_pin(store, pin, keyring.policy, now)
    done = set_right(store, keyring, now_ms=now, pin=known, dry_run=not apply)
    if apply:
        remember(
            open_snapshot(store, keyring.policy, now_ms=now_ms(), check_expiry=False), pin, published=done.published
        )
    if as_json:
        print_json({
            "version": done.version, "created_ms": done.created_ms, "now_ms": now, "needed": done.needed,
            "published": done.published,
        })  # fmt: skip
        return
    lines = [f"version {done.version} of {store} says {as_utc(done.created_ms)}, this machine's clock {as_utc(now)}"]
    if not done.needed:
        lines.append("readers and publishers take that: nothing to set right")
    elif done.published is None:
        lines.append(
            f"would publish version {done.version + 1}, with the same memories, dated by this clock: is it right?"
        )
        lines.append("dry run: nothing was changed; add --apply to publish")
    else:
        lines.append(f"version {done.published} published, with the same memories")
    print_lines(*lines)
