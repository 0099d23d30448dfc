"""A removal from the system that an agent uses: steps that are written down when they are done.

    RUN/withdrawals/<hash of the address>/plan.json           what is to go (`plan`), signed
                                          journal.json        which steps are done
                                          backup.age          what is deleted or changed (`backup`), with its
                                          backup.dsse.json    signed statement
                                          receipt.dsse.json   what was found afterwards (`receipt`), signed

1. plan; 2. backup; 3. delete; 4. clean; 5. erase, where that is asked for; all while the agent is kept out.
6. verify, by a fresh process; 7. receipt.

A step that was killed is done again by the same command: none of them does anything to what is done already. The plan
is made once, so that the same memories are meant whatever happened between. What the journal says can save work, and
delete nothing: that goes by the plan, which a stranger cannot sign.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.jobs.connect.removal.backup import is_backup, write_backup
from memory_audit.jobs.connect.removal.evidence import Evidence, Question, examined_afresh
from memory_audit.jobs.connect.removal.plan import MAX_PLAN_BYTES, make_plan, parse_plan, sign_plan
from memory_audit.jobs.connect.removal.receipt import MAX_RECEIPT_BYTES, make_receipt, parse_receipt, sign_receipt
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.address import Address
    from memory_audit.jobs.connect.connector import Connector
    from memory_audit.jobs.connect.removal.backup import Recipient
    from memory_audit.jobs.connect.removal.plan import Named, Plan
    from memory_audit.jobs.connect.removal.receipt import Receipt
    from memory_audit.provenance.keys import Keyring

__all__ = ["RECEIPT_FILE", "Wanted", "withdraw", "withdrawal_folder"]

FORMAT = "memaudit withdrawal v1"
PLAN_FILE, JOURNAL_FILE, RECEIPT_FILE = "plan.json", "journal.json", "receipt.dsse.json"
MAX_JOURNAL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a removal is to do."""

    run_id: str
    store: str
    """Id of the store."""

    entries: Mapping[Named, Entry]
    """What the run removed from it, as it was audited."""

    backup_to: Sequence[Recipient]
    context: bool = False
    """See `memory_audit.jobs.connect.connector.Removed`."""

    erase: bool = False


def withdrawal_folder(run: Path, address: Address) -> Path:
    """Return where a run keeps what it does to a source."""
    named = json.dumps([str(address), dict(sorted(address.options.items()))])
    return run / "withdrawals" / hashlib.sha256(named.encode()).hexdigest()[:16]


def withdraw(  # noqa: PLR0913 - what is taken out, from where, and who signs
    source: Connector, address: Address, folder: Path, wanted: Wanted, keyring: Keyring, *, now_ms: int
) -> Receipt:
    """Take memories out of a source, or go on where an earlier start was stopped.

    Args:
        source: Opened at `address`.
        address: Where it is.
        folder: Of `withdrawal_folder`.
        wanted: What is to be done. More may be asked for than the first time: `erase`.
        keyring: Holds the auditor's key.
        now_ms: Clock, Unix milliseconds.

    Raises:
        HeldError: the agent has the source open; nothing was changed.
        UsageError: a schema that the connector does not know; the folder is of another removal.
        VerificationError: the plan of an earlier start was changed.
        IncompleteError: it stopped on the way; the same call finishes it.
    """
    keyring.signers("auditor")  # whatever keeps a key locked is told before anything is written
    durable.ensure_folder(folder, mode=0o700)
    durable.remove_leftovers(folder)
    steps, path = _Steps.read(folder / JOURNAL_FILE), folder / RECEIPT_FILE
    stated = f"receipt{' erased' * (wanted.erase or 'erase' in steps.done)}"
    if stated in steps.done:
        data = durable.read_bounded(path, MAX_RECEIPT_BYTES, str(path))
        return parse_receipt(data, keyring.policy, str(path))
    with ExitStack() as stack:
        stack.enter_context(source.hold())
        plan = _plan(source, address, folder, wanted, keyring)
        removed = plan.removed
        if "delete" not in steps.done and not is_backup(folder, steps.done.get("backup", {"sha256": ""})):
            steps.done.pop("backup", None)  # nothing goes before it is there
        backup = steps.do(
            "backup", lambda: write_backup(folder, str(address), source.rows(removed), wanted.backup_to, keyring)
        )  # fmt: skip
        steps.do("delete", lambda: source.delete(removed))
        steps.do("clean", lambda: source.clean(removed))
        if wanted.erase:
            steps.do("erase", source.erase)
        erased = "erase" in steps.done
        question = Question(
            address=str(address), options=dict(address.options), records=plan.records, texts_only=plan.texts_only,
            context=plan.context, key=plan.key, raw_bytes=erased,
        )  # fmt: skip
        after = msgspec.convert(
            steps.do(f"verify{' erased' * erased}", lambda: msgspec.to_builtins(examined_afresh(question))), Evidence
        )
    receipt = make_receipt(plan, wanted.entries, source.facts, after, backup, now_ms=now_ms)
    durable.replace(path, sign_receipt(receipt, keyring))
    steps.do(stated, dict)
    return receipt


def _plan(source: Connector, address: Address, folder: Path, wanted: Wanted, keyring: Keyring) -> Plan:
    """Return the plan of an earlier start, or make one.

    Raises:
        UsageError: that start was asked for something else.
    """
    path = folder / PLAN_FILE
    if not path.exists():
        plan = make_plan(
            source, address, wanted.entries, store=wanted.store, run_id=wanted.run_id,
            context=wanted.context
        )  # fmt: skip
        durable.replace(path, sign_plan(plan, keyring), mode=0o600)
        return plan
    plan = parse_plan(durable.read_bounded(path, MAX_PLAN_BYTES, str(path)), keyring.policy, str(path))
    known = plan.address, plan.options, plan.store, plan.run_id, plan.context
    if known != (str(address), dict(address.options), wanted.store, wanted.run_id, wanted.context):
        raise UsageError(f"{path}: of a removal that was asked for otherwise; go on with its options")
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    path: Path
    done: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> _Steps:
        if not path.exists():
            return cls(path=path, done={})
        record = outside_json.decode(durable.read_bounded(path, MAX_JOURNAL_BYTES, str(path)), str(path))
        if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("done"), dict):
            raise UsageError(f"{path}: not a {FORMAT}; move it away, and start again")
        return cls(path=path, done=record["done"])

    def do(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a step, unless it is done, and return what it found."""
        if name not in self.done:
            self.done[name] = work()
            durable.replace(self.path, json.dumps({"format": FORMAT, "done": self.done}, indent=1).encode())
        return self.done[name]
