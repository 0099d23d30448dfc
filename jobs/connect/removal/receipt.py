"""The receipt of a removal from an agent's system: an in-toto Statement v1 in a DSSE envelope, of the auditor.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "user_id=bob/17df…", "digest": {"sha256": hash of the text's normal form}} …],
     "predicateType": "urn:memaudit:withdrawal:v1",
     "predicate": {"source", "schema", "writtenFor", "store", "runId", "createdMs",
                   "grades": {"noLongerRetrievable": true, "noRawResidueFound": null},
                   "layers": [{"name", "rowsBefore", "heldBefore", "rowsAfter", "heldAfter",
                               "othersUnchanged"} …],
                   "missing": [names], "edited": [names], "copies": n,
                   "backup": {"sha256", "bytes", "rows": {layer: n}},
                   "bytes": null or {"searched", "finds", "short"}, "vouched": {field: who},
                   "notProven": [sentences], "restart": [sentences], "guardPoint": "…"}}

It holds no text of a memory. The two grades are never one: what no path of the system finds any more may lie in its
files still, and what is in no file of it may lie in a backup. A grade that was not examined is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_audit.counted import counted
from memory_audit.errors import VerificationError
from memory_audit.jobs.connect.removal.evidence import text_hash
from memory_audit.provenance import dsse, strict_json
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.connector import Facts
    from memory_audit.jobs.connect.removal.evidence import Evidence
    from memory_audit.jobs.connect.removal.plan import Named, Plan
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["MAX_RECEIPT_BYTES", "Receipt", "make_receipt", "parse_receipt", "sign_receipt"]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:memaudit:withdrawal:v1"
MAX_RECEIPT_BYTES = 64 << 20

MISS = "A search of raw bytes that finds nothing proves nothing of compressed, encrypted or encoded copies."
OURS = "The run folder, older versions of the store and the backup hold the texts until they are destroyed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a receipt states."""

    predicate: Mapping[str, Any]
    subjects: tuple[Mapping[str, Any], ...]

    @property
    def is_clean(self) -> bool:
        """Whether all that was asked for is so, and nothing is left to a person."""
        grades = self.predicate["grades"]
        unchanged = all(layer["othersUnchanged"] for layer in self.predicate["layers"])
        whole = grades["noLongerRetrievable"] and grades["noRawResidueFound"] is not False
        return bool(whole and unchanged and not self.predicate["edited"])

    def lines(self) -> list[str]:
        """Return it as lines for people."""
        said, grades = self.predicate, self.predicate["grades"]
        lines = [f"{counted(len(self.subjects), 'memory')} taken out of {as_line(said['source'], 200)}"]
        for layer in said["layers"]:
            others = "others as before" if layer["othersUnchanged"] else "OTHERS CHANGED"
            lines.append(f"  {layer['name']}: {layer['heldBefore']:,} → {layer['heldAfter']:,} rows hold it; {others}")
        lines.append(f"no longer retrievable: {_word(grades['noLongerRetrievable'])}")
        residue = grades["noRawResidueFound"]
        lines.append(f"no raw residue found: {_word(residue)}{' (see --erase)' if residue is None else ''}")
        if said["copies"]:
            lines.append(f"  {counted(said['copies'], 'other memory')} has the same text, and was not to be removed")
        if said["edited"]:
            lines.append(f"  edited since the audit, and left: {', '.join(map(as_line, said['edited'][:10]))}")
        if said["missing"]:
            lines.append(f"  {counted(len(said['missing']), 'memory')} gone from there already")
        lines += (f"restart: {line}" for line in said["restart"])
        return [*lines, *(f"not proven: {line}" for line in said["notProven"])]


def make_receipt(  # noqa: PLR0913 - what was planned, done and found
    plan: Plan, entries: Mapping[Named, Entry], facts: Facts, after: Evidence, backup: Mapping[str, Any], *, now_ms: int
) -> Receipt:
    """State what was found after a removal."""
    before = plan.before
    layers = [
        {
            "name": name, "rowsBefore": before.rows.get(name, 0), "heldBefore": before.held.get(name, 0),
            "rowsAfter": after.rows.get(name, 0), "heldAfter": after.held.get(name, 0),
            "othersUnchanged": before.census.get(name) == after.census.get(name),
        }
        for name in sorted({*before.rows, *after.rows})
    ]  # fmt: skip
    searched = after.searched_bytes
    found = None if searched is None else {
        "searched": searched, "finds": sum(after.hits.values()), "short": after.short,
    }  # fmt: skip
    left = after.ids or after.copies or any(after.held.values())
    predicate = {
        "source": plan.address, "schema": plan.schema, "writtenFor": facts.written_for, "store": plan.store,
        "runId": plan.run_id, "createdMs": now_ms,
        "grades": {
            "noLongerRetrievable": not left, "noRawResidueFound": None if searched is None else not after.hits,
        },
        "layers": layers, "missing": [_name(named) for named in plan.missing],
        "edited": [_name(named) for named in plan.edited], "copies": len(after.copies),
        "backup": {"sha256": backup["sha256"], "bytes": backup["bytes"], "rows": backup["rows"]}, "bytes": found,
        "vouched": dict(facts.vouched), "restart": list(facts.restart), "guardPoint": facts.guard_point,
        "notProven": [*facts.unreachable, MISS, OURS],
    }  # fmt: skip
    subjects = tuple(
        {"name": _name(named), "digest": {"sha256": text_hash(entries[named].response)}}
        for named in sorted(entries.keys() - set(plan.edited))
    )
    return Receipt(predicate=predicate, subjects=subjects)


def sign_receipt(receipt: Receipt, keyring: Keyring) -> bytes:
    """Sign a receipt as the auditor. Raises like `Keyring.signers`."""
    statement = {
        "_type": STATEMENT_TYPE, "subject": list(receipt.subjects), "predicateType": PREDICATE_TYPE,
        "predicate": dict(receipt.predicate),
    }  # fmt: skip
    return dsse.seal(PAYLOAD_TYPE, strict_json.encode(statement), keyring.signers("auditor"))


def parse_receipt(data: bytes, trust: TrustPolicy, where: str) -> Receipt:
    """Verify a receipt.

    Raises:
        VerificationError: not the auditor's, or a statement of something else.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_RECEIPT_BYTES, where=where)
    dsse.verify_envelope(envelope, trust.roles["auditor"].keys, 1, "auditor")
    fields = strict_json.Fields(envelope.json(MAX_RECEIPT_BYTES), where)
    kind = fields.text("_type"), fields.text("predicateType")
    if kind != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise VerificationError(f"{where}: no receipt of a removal")
    receipt = Receipt(predicate=fields.take("predicate"), subjects=tuple(fields.take("subject")))
    fields.done()
    return receipt


def _name(named: Named) -> str:
    return "/".join(named)


def _word(grade: bool | None) -> str:  # noqa: FBT001 - what is put into words
    return "not examined" if grade is None else "yes" if grade else "NO"
