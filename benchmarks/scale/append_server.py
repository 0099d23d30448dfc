"""Makes a store, appends to it, or verifies it, by the code of whichever revision is on the path; tells the seconds.

    PYTHONPATH=TREE python append_server.py PACKAGE FOLDER

Reads lines of `[what, how many]` from standard input. It imports nothing else of the benchmarks: an earlier revision
has other ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_MS = 1_800_000_000_000


def main() -> None:
    """Do what is asked for on standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="what the revision calls its core")
    parser.add_argument("folder", type=Path, help="of keys and store")
    options = parser.parse_args()
    folder = options.folder

    def module(*names: str) -> Any:
        for name in names:
            try:
                return import_module(f"{options.package}.{name}")
            except ModuleNotFoundError:
                continue
        raise SystemExit(f"no {names[0]} in this revision")

    publish = module("snapshot.publishing.publish", "snapshot.publish")
    keys, verify, entry = module("provenance.keys"), module("snapshot.verify"), module("entry")
    if not (folder / "keys").is_dir():
        keys.save_keyring(keys.generate_keys(), folder / "keys")
    keyring, store = keys.load_keyring(folder / "keys"), folder / "store"

    def memories(count: int, prefix: str) -> Iterator[Any]:
        """Entries of about 500 bytes, each second one drawn from the one before."""
        for number in range(count):
            parent = entry.Parent(entry_id=f"{prefix}{number - 1}", weight_ppm=400_000)
            yield entry.Entry(
                tenant="acme", entry_id=f"{prefix}{number}", principal="agent-7", source="agent",
                request=f"How do I reset the password of account {number}?",
                response=f"Open settings, choose security, then reset. Ticket {number}. " * 5,
                created_at_ms=NOW_MS, parents=(parent,) if number % 2 else (), metadata={"channel": "chat"},
            )  # fmt: skip

    for line in sys.stdin:
        what, count = json.loads(line)
        entries = list(memories(count, "m" if what == "create" else f"a{time.time_ns()}-"))
        start = time.perf_counter()
        if what == "create":
            publish.create_store(store, entries, keyring, now_ms=NOW_MS)
        elif what == "append":
            publish.append_entries(store, entries, keyring, now_ms=NOW_MS)
        else:
            verify.verify_store(store, keyring.policy, now_ms=NOW_MS)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
