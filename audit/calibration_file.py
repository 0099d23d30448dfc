"""A calibration on disk: what `memaudit calibrate` measured, signed by the auditor, and which audits it fits.

A DSSE envelope signed by the auditor, whose payload is, wrapped here:

    {"format": "memaudit calibration v1", "made_ms": 1760000000000, "backbone": "qwen2.5-1.5b-int8@5f…",
     "setting": {"agent": SHA-256 (hex), "harm": "answer-label", "retrieval": "dense", "k": 3, "search": "v1 …"},
     "judged_by": "probe_pattern", "events": 150,
     "incidents": [{"tenant": "acme", "event_id": "e-17", "micronats": 412000}]}

`micronats` is the largest evidence M_i (`memory_audit.attribution.calibration`), rounded up. No text of a memory, a
question or an answer is in it. Who could write into it could raise the threshold above any poison, or convict whom he
likes: a reader MUST reject a file that the auditor's threshold of unrevoked keys did not sign, one in another encoding,
and an event named twice.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from memory_audit.attribution.calibration import Calibration
from memory_audit.entry import MAX_TIME_MS
from memory_audit.errors import UsageError, VerificationError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.provenance import dsse, strict_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from memory_audit.provenance.ed25519 import Signer
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = [
    "PAYLOAD_TYPE", "CalibrationFile", "Incident", "JudgedBy", "Setting", "parse_calibration", "read_calibration",
    "sign_calibration",
]  # fmt: skip

PAYLOAD_TYPE = "application/vnd.memaudit.calibration+json"
_FORMAT = "memaudit calibration v1"

MAX_CALIBRATION_BYTES = 64 << 20
MAX_INCIDENTS = 100_000
MAX_K = 10_000_000
MAX_BACKBONE_BYTES = 4_096
MICRO = 1_000_000
MAX_MICRONATS = 1_000_000 * MICRO

JudgedBy = Literal["probe_pattern", "harm scorer"]
"""What told that an answer is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What evidence depends on besides the backbone."""

    agent: str
    """SHA-256 (hex) of the agent's settings and code."""

    harm: str
    """Kind of the harm scorer."""

    retrieval: str
    k: int
    """Memories that an incident retrieves: of a calibration the fewest, of an audit the most."""

    search: str
    """Version of the evidence, and its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One clean incident."""

    tenant: str
    event_id: str
    nats: float
    """The largest evidence against any memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """A verified calibration."""

    backbone: str
    """Model id: weights and their precision."""

    setting: Setting
    judged_by: JudgedBy
    events: int
    """Events among which the incidents were found."""

    incidents: tuple[Incident, ...]
    made_ms: int
    digest: str = ""
    """SHA-256 (hex) of the signed file."""

    @property
    def calibration(self) -> Calibration:
        """What the incidents tell."""
        return Calibration(largest_nats=tuple(incident.nats for incident in self.incidents))

    def check_fits(self, setting: Setting) -> None:
        """Refuse an audit whose evidence is not like that of the incidents.

        Raises:
            UsageError: names what differs.
        """
        ours, asked = asdict(self.setting), asdict(setting)
        different = [name for name in ours if name != "k" and ours[name] != asked[name]]
        if different:
            raise UsageError(f"the calibration is of another {' and '.join(different)}: {_ADVICE}")
        if setting.k > self.setting.k:
            raise UsageError(
                f"the calibration is of {self.setting.k} memories retrieved, this audit has events with {setting.k}: "
                f"{_ADVICE}"
            )

    def check_backbone(self, model_id: str) -> None:
        """Refuse an audit on another model.

        Raises:
            UsageError: names both.
        """
        if model_id != self.backbone:
            raise UsageError(
                f"the calibration is of the backbone {self.backbone:.80}, not of {model_id:.80}: {_ADVICE}"
            )


_ADVICE = "calibrate again with `memaudit calibrate`, or audit without a calibration"


def sign_calibration(file: CalibrationFile, keys: Iterable[Signer]) -> bytes:
    """Return the signed file."""
    record = {
        "format": _FORMAT, "made_ms": file.made_ms, "backbone": file.backbone, "setting": asdict(file.setting),
        "judged_by": file.judged_by, "events": file.events,
        "incidents": [
            {"tenant": item.tenant, "event_id": item.event_id, "micronats": _micronats(item.nats)}
            for item in file.incidents
        ],
    }  # fmt: skip
    return dsse.seal(PAYLOAD_TYPE, strict_json.encode(record), keys)


def _micronats(nats: float) -> int:
    """Round up, but not what a float adds to a whole number of them."""
    return min(math.ceil(round(nats * MICRO, 3)), MAX_MICRONATS)


def read_calibration(path: Path, trust: TrustPolicy) -> CalibrationFile:
    """Read a calibration, by the word of the auditor whom the policy names.

    Raises:
        UsageError: the file cannot be read.
        VerificationError: it breaks a rule, or the auditor did not sign it.
    """
    return parse_calibration(read_at_most(path, MAX_CALIBRATION_BYTES), trust, f"{path!s:.300}")


def parse_calibration(data: bytes, trust: TrustPolicy, where: str) -> CalibrationFile:
    """Verify the bytes of a calibration. Raises like `read_calibration`."""
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_CALIBRATION_BYTES, where=where)
    auditor = trust.roles["auditor"]
    valid = {key_id: key for key_id, key in auditor.keys.items() if key_id not in trust.revoked}
    advice = ": calibrate again, with keys of this policy"
    dsse.verify_envelope(envelope, valid, auditor.threshold, "auditor", advice=advice)
    fields = strict_json.Fields(envelope.json(MAX_CALIBRATION_BYTES), where)
    fields.expect_format(_FORMAT)
    about = fields.object("setting")
    setting = Setting(
        agent=about.text("agent"), harm=about.text("harm"), retrieval=about.text("retrieval"),
        k=about.whole("k", MAX_K), search=about.text("search"),
    )  # fmt: skip
    about.done()
    judged_by = fields.text("judged_by")
    if judged_by not in get_args(JudgedBy):
        known = " or ".join(get_args(JudgedBy))
        raise VerificationError(f"{where}: 'judged_by' is {judged_by!r:.60}, expected {known}")
    incidents = []
    for item in fields.objects("incidents", MAX_INCIDENTS):
        tenant, event_id = item.text("tenant"), item.text("event_id")
        nats = item.whole("micronats", MAX_MICRONATS) / MICRO
        incidents.append(Incident(tenant=tenant, event_id=event_id, nats=nats))
        item.done()
    file = CalibrationFile(
        backbone=fields.text("backbone", MAX_BACKBONE_BYTES), setting=setting, judged_by=cast("JudgedBy", judged_by),
        events=fields.whole("events", MAX_MICRONATS), incidents=tuple(incidents),
        made_ms=fields.whole("made_ms", MAX_TIME_MS), digest=hashlib.sha256(data).hexdigest(),
    )  # fmt: skip
    fields.done()
    if len({(item.tenant, item.event_id) for item in incidents}) < len(incidents):
        raise VerificationError(f"{where}: an event is named twice")
    return file
