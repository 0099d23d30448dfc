"""Commands interrupted at random and given again: what they work on, and what is looked at afterwards.

A trial is a scenario: one command after the other, in a copy of a folder made beforehand. Each is interrupted, once or
more (`tests/conformance/interrupted.py`), and then given again and left alone. What must hold:

1. after every interruption the store verifies, deeply, and shows no less than the pin says;
2. the command given again ends with 0, in the state in which it ends undisturbed;
3. once a vacuum said 0, no removed text is in any file of the store, neither as it is nor decompressed.

Where the interruption came after a command's last change, the command was done: given again it changes nothing,
whatever it says. A rotation is not given again then, since it would be another one. States are compared without times,
and without the digests that follow from them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from memory_audit.errors import AuditError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE, QUARANTINE_FILE
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE, load_policy
from memory_audit.snapshot.attest import verify_attestation
from memory_audit.snapshot.layout import has_store
from memory_audit.snapshot.pin import read_pin
from memory_audit.snapshot.reader import open_snapshot, read_manifest
from memory_audit.snapshot.verify import verify_store
from tests.conformance.interrupted import Ended, How, Interruption, run_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_audit.snapshot.reader import VerifiedSnapshot

    Words = tuple[str, ...]

__all__ = ["SCENARIOS", "Tally", "World", "shown", "state_of"]

CONFIG = "harm: {kind: regex, pattern: HARM}\nbackbone: fake\nnli: fake\nembedder: fake\n"
QUERY = "how do I handle case 3 of printer trouble"
POISONED = frozenset({"first-3", "first-7"})
TENANTS = {"acme": 9, "globex": 2}
"""To memories in the first import; two of the first tenant's are poisoned, in the word that the fakes obey."""

NEW = ("keys", "new")
FIRST = ("import", "jsonl:first.jsonl", "store")
SECOND = ("import", "jsonl:second.jsonl", "store")
ALL = ("import", "jsonl:all.jsonl", "store", "--new-only")
AUDIT = ("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--quiet")
PURGE = ("purge", "run", "store", "--apply")
QUARANTINE = ("purge", "run", "store", "--quarantine", "--apply")
RELEASE_ONE = ("release", "store", "first-3", "--tenant", "acme", "--apply")
RELEASE = ("release", "store", "first-3", "first-7", "--tenant", "acme", "--apply")
FORGET = (
    "forget", "store", "first-1", "--tenant", "acme", "--reason", "ticket 7", "--expires", "90d", "--backbone", "none",
    "--embedder", "none", "--apply",
)  # fmt: skip
VACUUM = ("vacuum", "store", "--keep", "0d", "--apply")
ROTATE = ("keys", "rotate", "log", "store", "--apply")
EXPORT = ("export", "store", "--out", "left.jsonl")

SCENARIOS: dict[str, tuple[tuple[Words, ...], tuple[Words, ...]]] = {
    "import": ((NEW,), (FIRST,)),
    "append": ((NEW, FIRST), (SECOND,)),
    "import what is new": ((NEW, FIRST), (ALL,)),
    "purge": ((NEW, FIRST, AUDIT), (PURGE,)),
    "quarantine": ((NEW, FIRST, AUDIT), (QUARANTINE, RELEASE)),
    "quarantine and purge": ((NEW, FIRST, AUDIT, QUARANTINE, RELEASE_ONE, SECOND), (PURGE,)),
    "forget": ((NEW, FIRST), (FORGET,)),
    "vacuum": ((NEW, FIRST, AUDIT, PURGE, SECOND, FORGET), (VACUUM,)),
    "rotate": ((NEW, FIRST), (ROTATE,)),
    "export": ((NEW, FIRST, FORGET), (EXPORT,)),
    "purge and vacuum": ((NEW, FIRST, AUDIT), (PURGE, VACUUM)),
    "all": ((NEW,), (FIRST, SECOND, FORGET, VACUUM, ROTATE, ALL, EXPORT, VACUUM)),
}
"""By name: the commands before, which nothing disturbs, and those that are interrupted."""

HOWS: tuple[How, ...] = ("before", "after", "torn", "refused", "ctrl-c", "moment")
AGAIN = 0.3
"""How likely the next try is interrupted too."""

STOPPED = frozenset({None, 0, 3, 130})
"""What an interrupted command may end with: killed, done all the same, incomplete, interrupted."""

PIECE_BYTES = 256
"""What is decompressed at a time, so that of a torn block all is seen that can be."""

_ZSTD = b"\x28\xb5\x2f\xfd"
"""How a compressed page of a Parquet file begins (RFC 8878)."""


Failure = Literal[
    "a store does not verify after an interruption",
    "a command given again does not end with 0",
    "a command says 0 in another state than undisturbed",
    "a command that was done changes something when given again",
    "removed text is in the store after a vacuum that said 0",
    "an interrupted command ends with another exit code than 0, 3 and 130",
]


@dataclass
class Tally:
    """What trials found."""

    interruptions: Counter[str] = field(default_factory=Counter)
    """By command."""

    how: Counter[str] = field(default_factory=Counter)

    found: dict[Failure, list[str]] = field(default_factory=lambda: {kind: [] for kind in get_args(Failure)})
    """What did not hold, to where it was seen."""


class World:
    """A scenario: the folder it starts from, the states in which its commands end undisturbed, and trials in copies."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        before, self._commands = SCENARIOS[name]
        self.template = folder / "template"
        self.template.mkdir(parents=True)
        self._texts = _write_files(self.template)
        for words in before:
            _undisturbed(words, self.template)
        place = shutil.copytree(self.template, folder / "undisturbed")
        self._ended: list[Ended] = []
        self._states: list[dict[str, Any]] = []
        for words in self._commands:
            self._ended.append(_undisturbed(words, place))
            self._states.append(state_of(place))

    def trial(self, seed: int, tally: Tally) -> None:
        """Run the scenario in a copy, interrupting every command; a seed always draws the same interruptions."""
        draw = random.Random(f"{self._name} {seed}")
        place = shutil.copytree(self.template, self._folder / f"trial-{seed}")
        for number in range(len(self._commands)):
            if not self._until_done(place, number, draw, tally, f"{self._name}, seed {seed}"):
                break
        shutil.rmtree(place)

    def _until_done(self, place: Path, number: int, draw: random.Random, tally: Tally, where: str) -> bool:
        """Give a command until it is done; return whether the trial can go on."""
        words, done, tries = self._commands[number], False, 0
        while not done:
            interruption = self._drawn(number, draw) if tries == 0 or draw.random() < AGAIN else None
            ended = run_command(words, place, interruption)
            tries += 1
            if interruption is not None and ended.interrupted:
                tally.interruptions[words[0]] += 1
                tally.how[interruption.how] += 1
            seen = f"{where}, {' '.join(words)}, try {tries}, {interruption}: {ended.code} {ended.err.strip()[-200:]}"
            try:
                state = state_of(place)
            except AuditError as error:
                tally.found["a store does not verify after an interruption"].append(f"{seen}; {error}")
                return False
            done = state == self._states[number]
            if ended.code == 0 and not done:
                tally.found["a command says 0 in another state than undisturbed"].append(
                    f"{seen}; {_difference(state, self._states[number])}"
                )
                return False
            if words == VACUUM and ended.code == 0 and (left := _left(place, self._texts, state)):
                tally.found["removed text is in the store after a vacuum that said 0"].append(f"{seen}; {left}")
            if ended.interrupted and ended.code not in STOPPED:
                tally.found["an interrupted command ends with another exit code than 0, 3 and 130"].append(seen)
            if not ended.interrupted and ended.code != 0:
                tally.found["a command given again does not end with 0"].append(seen)
                return False
        if words != ROTATE and ended.code != 0:  # done when it was interrupted, which nobody was told
            ended = run_command(words, place)
            if state_of(place) != self._states[number]:
                tally.found["a command that was done changes something when given again"].append(f"{seen}; {ended}")
        return True

    def _drawn(self, number: int, draw: random.Random) -> Interruption:
        how = draw.choice(HOWS)
        ended = self._ended[number]
        return Interruption(
            how, draw.uniform(0, ended.seconds) if how == "moment" else draw.randrange(ended.operations)
        )


def state_of(folder: Path) -> dict[str, Any]:
    """Verify what commands left in a folder, and return it without times.

    Raises:
        AuditError: something does not verify, or shows less than the pin says.
    """
    keys, store, now = folder / "memaudit-keys", folder / "store", now_ms()
    policy = load_policy(keys / POLICY_FILE)
    state: dict[str, Any] = {
        "keys": sorted(path.name for path in keys.iterdir()), "policy": [policy.version, len(policy.revoked)],
        "half-written": [path.name for path in folder.iterdir() if durable.is_leftover(path)],
    }  # fmt: skip
    if has_store(store):
        pins = list((folder / "state").rglob("*.json"))
        pin = read_pin(pins[0]) if pins else None
        report = verify_store(store, policy, now_ms=now, pin=pin, deep=True, workers=1)
        made = [read_manifest(store, policy, one, now_ms=now, check_expiry=False) for one in report.versions]
        state |= {
            "pin": pin and pin.version, "versions": [[one.version, one.operation] for one in made],
            "tenants": _tenants(open_snapshot(store, policy, now_ms=now)),
        }  # fmt: skip
    for file in (ATTESTATION_FILE, QUARANTINE_FILE):
        if (attestation := folder / "run" / file).exists():
            attested = verify_attestation(attestation.read_bytes(), policy, file)
            state[file] = [attested.version, [item.entry_id for item in attested.removed]]
    if (out := folder / EXPORT[-1]).exists():
        state["exported"] = [json.loads(line)["entry_id"] for line in out.read_text().splitlines()]
    return state


def shown(path: Path) -> Iterator[bytes]:
    """What a file says to who looks for a text: its bytes, its columns, and what its compressed blocks hold."""
    data = path.read_bytes()
    yield data
    with contextlib.suppress(pa.ArrowException):
        yield json.dumps(pq.read_table(pa.BufferReader(data)).to_pydict(), default=str).encode()
    for start in (match.start() for match in re.finditer(re.escape(_ZSTD), data)):
        stream, read = pa.CompressedInputStream(pa.BufferReader(data[start:]), "zstd"), b""
        with contextlib.suppress(OSError):  # a block that was not written to its end
            while part := stream.read(PIECE_BYTES):
                read += part
        yield read


def _left(place: Path, texts: dict[tuple[str, str], bytes], state: dict[str, Any]) -> list[str]:
    """Return the files of a store that hold the text of a removed memory, or that no version names."""
    removed = [
        texts[tenant, stone[0]] for tenant, log in state["tenants"].items() for stone in log["tombstones"]
    ]  # fmt: skip
    files = [path for path in sorted((place / "store").rglob("*")) if path.is_file()]
    found = [path for path in files if any(text in part for part in shown(path) for text in removed)]
    return [str(path.relative_to(place)) for path in found]


def _tenants(snapshot: VerifiedSnapshot) -> dict[str, Any]:
    return {
        tenant: {
            "leaves": len(snapshot.log(tenant).leaf_hashes),
            "entries": [
                [entry.entry_id, entry.principal, entry.request, entry.response] for entry in snapshot.entries(tenant)
            ],
            "tombstones": [
                [stone.entry_id, stone.removed_index, stone.reason, sorted(stone.extra)]
                for stone in snapshot.tombstones(tenant)
            ],
        }
        for tenant in snapshot.tenants
    }


def _write_files(folder: Path) -> dict[tuple[str, str], bytes]:
    """Write what the commands read; return the text of each memory by tenant and id."""
    first = [_memory(tenant, f"first-{n}", n) for tenant, count in TENANTS.items() for n in range(count)]
    second = [_memory(tenant, f"second-{n}", n) for tenant in TENANTS for n in range(2)]
    third = [_memory(tenant, f"third-{n}", n) for tenant in TENANTS for n in range(2)]
    event = {"event_id": "e1", "tenant": "acme", "ts_ms": 1, "query": QUERY, "output": "HARM"}
    for name, rows in (
        ("first", first), ("second", second), ("all", first + second + third),
        ("events", [event | {"harm": {"label": "harmful"}}]),
    ):  # fmt: skip
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "memaudit.yaml").write_text(CONFIG)
    return {(row["tenant"], row["entry_id"]): row["response"].split()[-1].encode() for row in first + second + third}


def _memory(tenant: str, name: str, number: int) -> dict[str, str]:
    poison = "POISON " if name in POISONED and tenant == "acme" else ""
    secret = hashlib.sha256(f"{tenant}/{name}".encode()).hexdigest()
    return {
        "tenant": tenant, "entry_id": name, "principal": f"user-{number}", "source": "agent",
        "request": f"how do I handle case {number % 4} of printer trouble", "response": f"{poison}answer {secret}",
    }  # fmt: skip


def _undisturbed(words: Words, folder: Path) -> Ended:
    ended = run_command(words, folder)
    if ended.code != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {ended.code}, undisturbed: {ended.err}")
    return ended


def _difference(state: dict[str, Any], wanted: dict[str, Any]) -> str:
    return str(
        {key: (state.get(key), wanted.get(key)) for key in state.keys() | wanted if state.get(key) != wanted.get(key)}
    )[:400]
