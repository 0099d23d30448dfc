"""Published memory guards on the same writes: what they refuse once the poison was removed.

They are installed as `INSTALL` says, and found with `--packages FOLDER`. Each runs in a process of its own that finds
that folder before the environment's packages and imports nothing of this project. A peer that is not installed is a row
with the reason.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.guard.hst.corpus import Write

__all__ = ["INSTALL", "MODES", "PeerMissingError", "ask_peer"]

MODES = (
    ("agent-memory-guard", "strict"),
    ("agent-memory-guard", "scan"),
    ("memgovern", "new-key"),
    ("memgovern", "same-key"),
    ("bastionmemory", "block"),
    ("bastionmemory", "review"),
)
"""Each peer as its authors set it up, and its more severe way where it has one."""

INSTALL = "pip install --target FOLDER agent-memory-guard==0.3.3 memgovern==0.5.0 bastionmemory==0.2.0"

WORKER = Path(__file__).with_name("peer_worker.py")
TIMEOUT_S = 300


class PeerMissingError(Exception):
    """The peer is not installed, or did not run; the message says which."""


def ask_peer(  # noqa: PLR0917 - what a peer is told, in order
    peer: str, mode: str, stored: Sequence[Write], removed: Sequence[Write], attempts: Mapping[str, Sequence[Write]],
    packages: Path | None, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Run a peer.

    Args:
        peer: Name of the distribution.
        mode: See `MODES`.
        stored: What is in memory before the removal, `removed` included.
        removed: What is then forgotten.
        attempts: Sets of writes by name; all are tried in one shuffled sequence.
        packages: Folder that the peers were installed into.
        seed: Of the shuffles.

    Returns:
        `version`, `seconds_per_write`, and `blocked`: per set the ids refused.

    Raises:
        PeerMissingError: see the class.
    """
    if packages is None:
        raise PeerMissingError("not installed: --packages was not given")
    rng = random.Random(seed)
    before = [(write.write_id, write.text) for write in stored]
    after = [(f"{name}/{write.write_id}", write.text) for name, group in attempts.items() for write in group]
    rng.shuffle(before)
    rng.shuffle(after)
    question = {
        "peer": peer, "mode": mode, "stored": before, "removed": [write.write_id for write in removed],
        "attempts": after,
    }  # fmt: skip
    # -P keeps this package's folder off the path, -s the user's; PYTHONPATH comes before the environment's packages.
    run = subprocess.run(
        [sys.executable, "-P", "-s", str(WORKER)], input=json.dumps(question), capture_output=True, text=True,
        check=False, timeout=TIMEOUT_S, env={"PYTHONPATH": str(packages.resolve()), "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines()
        raise PeerMissingError(f"did not run: {lines[-1] if lines else run.returncode!s:.200}")
    answer: dict[str, Any] = json.loads(run.stdout)
    refused = set(answer["blocked"])
    answer["blocked"] = {
        name: [write.write_id for write in group if f"{name}/{write.write_id}" in refused]
        for name, group in attempts.items()
    }
    return answer
