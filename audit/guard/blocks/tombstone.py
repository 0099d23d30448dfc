"""The tombstone of a removed memory that also keeps its paraphrases out.

It is an ordinary tombstone of the log (`memory_audit.provenance.leaf`: removed leaf index and hash, reason, run id,
time, signed by the auditor) with one item in `extra`, called `hazard`. Example (`memory_audit.provenance.strict_json`):

    {"act_model": "qwen@5d0c…+acts", "acts": ["Gx4…"],
     "embedder": "minilm@3a1f…", "expires_at_ms": null, "fingerprints": ["9c…"], "format": "memaudit hazard v1",
     "keys": ["fwA…"], "labels": ["skip_validation"], "model": "qwen@5d0c…", "scope": "tenant", "taxonomy": "77ab…"}

Rules, all of which a reader MUST check:

1. `labels` is the signature, sorted, each once; null where no model could be asked: unknown is not empty;
2. `keys` are the semantic keys of what the removed memory did (`memory_audit.guard.text.forms`), base 64 of signed
   bytes;
3. `fingerprints` are salted digests of its words, 16 bytes in hex; the salt is the store's id;
4. `scope` is `tenant` (the log's own) or `operator`: every tenant of the store. Both are the auditor's signed word;
5. from `expires_at_ms` on (Unix milliseconds) the block holds no more; the removal itself stays;
6. `acts` are the behaviours that it taught, likewise, by `act_model` (`memory_audit.guard.blocks.behaviour`); where
   there are none they are empty;
7. an unknown field, another spelling of the same values, or a missing field MUST be rejected.

No removed text is inside, and none can be computed from it; guesses at the text can be tested, as with any hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_audit.entry import MAX_NAME_BYTES, MAX_TIME_MS
from memory_audit.errors import UsageError, VerificationError
from memory_audit.guard.blocks.behaviour import checked_features
from memory_audit.guard.blocks.hazard import MAX_LABELS, HazardSignature
from memory_audit.guard.blocks.semantic_key import MAX_DIMENSIONS, SemanticKey
from memory_audit.guard.text.forms import action_of, fingerprint, noted_in, wholes
from memory_audit.provenance import base64_strict, strict_json
from memory_audit.provenance.leaf import MAX_EXTRA_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.provenance.leaf import Tombstone

    Embed = Callable[[Sequence[str]], NDArray[np.float32]]

__all__ = [
    "EXTRA_KEY",
    "BlockRecord",
    "BlockScope",
    "HazardTombstone",
    "block_record",
    "read_block_record",
    "read_hazard",
]

BlockScope = Literal["tenant", "operator"]

EXTRA_KEY = "hazard"
_FORMAT = "memaudit hazard v1"

MOST_PIECES = 80
"""Of a removed text that are read, as of a write (`GuardSettings.read_at_most`)."""

MAX_KEYS = 4
"""Keys of one removed memory: of the pieces that bear its hazards, or of all, the most harmful ones."""

MAX_FINGERPRINTS = MAX_KEYS + 1
"""Of the whole response, and of as many pieces as there are keys; without labels also of it with its metadata."""

FINGERPRINT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecord:
    """What a tombstone says of writes to come: the value of `extra["hazard"]`."""

    signature: HazardSignature | None
    """None where no model could be asked, or none answered within the schema."""

    keys: tuple[SemanticKey, ...]
    """All of one embedder."""

    fingerprints: tuple[bytes, ...]
    behaviours: tuple[SemanticKey, ...] = ()
    """All of one reader of behaviours."""

    scope: BlockScope = "tenant"
    expires_at_ms: int | None = None

    def to_extra(self) -> dict[str, str]:
        """Return what goes into the tombstone's `extra`.

        Raises:
            UsageError: it does not fit.
        """
        known = self.signature
        for keys in (self.keys, self.behaviours):
            if len({key.embedder for key in keys}) > 1 or len(keys) > MAX_KEYS:
                raise UsageError(
                    f"a tombstone holds at most {MAX_KEYS} keys and {MAX_KEYS} behaviours, of one model each"
                )
        value: dict[str, object] = {
            "format": _FORMAT,
            "labels": None if known is None else sorted(known.labels),
            "taxonomy": "" if known is None else known.taxonomy,
            "model": "" if known is None else known.model,
            "embedder": _model(self.keys),
            "keys": [base64_strict.encode(key.quantised) for key in self.keys],
            "fingerprints": sorted(item.hex() for item in self.fingerprints),
            "scope": self.scope,
            "expires_at_ms": self.expires_at_ms,
            "act_model": _model(self.behaviours),
            "acts": [base64_strict.encode(behaviour.quantised) for behaviour in self.behaviours],
        }
        text = strict_json.encode(value).decode()
        if len(text) > MAX_EXTRA_VALUE_BYTES:
            raise UsageError(f"the hazard record of a tombstone has {len(text)} bytes, at most {MAX_EXTRA_VALUE_BYTES}")
        return {EXTRA_KEY: text}


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardTombstone:
    """A verified tombstone and its block record."""

    tombstone: Tombstone
    block: BlockRecord

    def expired(self, now_ms: int) -> bool:
        """Tell whether the block has ended."""
        return self.block.expires_at_ms is not None and now_ms >= self.block.expires_at_ms


def block_record(  # noqa: PLR0913 - the parts of a record
    entry: Entry,
    *,
    store_id: str,
    signature: HazardSignature | None,
    embed: Embed | None,
    embedder: str = "",
    action: Sequence[str] = (),
    behaviours: BehaviourReader | None = None,
    scope: BlockScope = "tenant",
    expires_at_ms: int | None = None,
) -> BlockRecord:
    """Build the block record of a removed entry.

    Where no model told what bears its hazards, its metadata is taken in if that is harmful, and more so than the
    response; what all entries of a store have in common is blocked for none.

    Args:
        entry: What is removed.
        store_id: Salt of the fingerprints.
        signature: Its hazards, from a model; None where there was none.
        embed: Texts to unit vectors, shape (texts, dimensions); None leaves the keys out.
        embedder: Id of the embedding model.
        action: The forms that bear its hazards, where a model told; else what
            `memory_audit.guard.text.forms.action_of` says.
        behaviours: Reads what they teach; None leaves the behaviours out.
        scope: Whose writes are refused.
        expires_at_ms: When the block ends, Unix milliseconds; None is never.
    """
    default = action_of(entry)
    noted = () if action else _worse([text for text in noted_in(entry) if text not in default], default, behaviours)
    known = _worst(tuple(action) or (*noted, *default), behaviours)[:MAX_KEYS]
    keys = () if embed is None or not known else tuple(SemanticKey.of(row, embedder) for row in embed(known))
    taught = () if behaviours is None or not known else tuple(
        SemanticKey.of(reading.direction, behaviours.model_id)
        for reading in checked_features(behaviours.taught(known), len(known), 0)
    )  # fmt: skip
    # The whole response is locked with any of its pieces; a piece alone, only where it was found to bear the hazard.
    whole = wholes(entry)
    if action:
        whole = (entry.response,) if set(known) & set(default) else ()
    bearing = set(action or noted)
    found = dict.fromkeys(
        fingerprint(text, store_id) for text in (*whole, *(text for text in known if text in bearing))
    )
    prints = [item for item in found if item is not None][:MAX_FINGERPRINTS]
    return BlockRecord(
        signature=signature, keys=keys, fingerprints=tuple(sorted(prints)), behaviours=taught, scope=scope,
        expires_at_ms=expires_at_ms,
    )  # fmt: skip


def _worse(texts: Sequence[str], than: Sequence[str], behaviours: BehaviourReader | None) -> tuple[str, ...]:
    """Return those texts that are harmful, and more harmful than all others."""
    if behaviours is None or not texts:
        return ()
    texts, than = texts[:MOST_PIECES], than[:MOST_PIECES]
    harm = [one.harm_nats for one in checked_features(behaviours.read((*than, *texts)), len(than) + len(texts), 0)]
    least = max((0.0, *harm[: len(than)]))
    return tuple(text for text, nats in zip(texts, harm[len(than) :], strict=True) if nats > least)


def _worst(texts: Sequence[str], behaviours: BehaviourReader | None) -> tuple[str, ...]:
    """Return the MAX_KEYS most harmful of a long text's pieces, in order: its poison need not be where it begins."""
    if behaviours is None or len(texts) <= MAX_KEYS:
        return tuple(texts)
    texts = texts[:MOST_PIECES]
    read = checked_features(behaviours.read(texts), len(texts), 0)
    worst = sorted(range(len(texts)), key=lambda number: -read[number].harm_nats)[:MAX_KEYS]
    return tuple(texts[number] for number in sorted(worst))


def read_hazard(tombstone: Tombstone) -> HazardTombstone | None:
    """Read a verified tombstone's block record; None where it has none, being a plain removal.

    Raises:
        VerificationError: a rule of the module's docstring is broken.
    """
    text = tombstone.extra.get(EXTRA_KEY)
    if text is None:
        return None
    return HazardTombstone(
        tombstone=tombstone, block=read_block_record(text, f"tombstone of {tombstone.entry_id!r:.80}: hazard")
    )


def read_block_record(text: str, where: str) -> BlockRecord:
    """Read a block record from its one spelling. Raises like `read_hazard`."""
    value = strict_json.decode(text.encode(errors="replace"), max_bytes=MAX_EXTRA_VALUE_BYTES, where=where)
    fields = strict_json.Fields(value, where)
    fields.expect_format(_FORMAT)
    labels = fields.take("labels")
    taxonomy, model = fields.text("taxonomy", may_be_empty=True), fields.text("model", 1_024, may_be_empty=True)
    embedder = fields.text("embedder", 1_024, may_be_empty=True)
    keys, prints, scope = fields.take("keys"), fields.take("fingerprints"), fields.text("scope")
    expires = fields.whole_or_none("expires_at_ms", MAX_TIME_MS)
    behaviour_model = fields.text("act_model", 1_024, may_be_empty=True)
    behaviours = _texts(fields.take("acts"), MAX_KEYS, f"{where}: acts")
    fields.done()
    if scope not in ("tenant", "operator"):
        raise VerificationError(f"{where}: scope is {scope!r:.40}, expected tenant or operator")
    signature = None
    if labels is not None:
        names = _sorted_texts(labels, MAX_LABELS, f"{where}: labels")
        signature = HazardSignature(labels=frozenset(names), taxonomy=taxonomy, model=model)
    block = BlockRecord(
        signature=signature,
        keys=tuple(_key(item, embedder, where) for item in _texts(keys, MAX_KEYS, f"{where}: keys")),
        fingerprints=tuple(
            _print(item, where) for item in _sorted_texts(prints, MAX_FINGERPRINTS, f"{where}: fingerprints")
        ),
        behaviours=tuple(_key(item, behaviour_model, where) for item in behaviours),
        scope="operator" if scope == "operator" else "tenant",
        expires_at_ms=expires,
    )
    try:
        again = block.to_extra()[EXTRA_KEY]
    except UsageError as error:
        raise VerificationError(f"{where}: {error}") from None
    ragged = any(len({len(key.quantised) for key in keys}) > 1 for keys in (block.keys, block.behaviours))
    if ragged or again != text:
        raise VerificationError(f"{where}: not the one spelling of its values")
    return block


def _model(keys: Sequence[SemanticKey]) -> str:
    return min((key.embedder for key in keys), default="")


def _texts(value: object, most: int, where: str) -> list[str]:
    if not isinstance(value, list) or len(value) > most or not all(isinstance(item, str) for item in value):
        raise VerificationError(f"{where}: expected a list of at most {most} texts")
    return value


def _sorted_texts(value: object, most: int, where: str) -> list[str]:
    found = _texts(value, most, where)
    if found != sorted(set(found)) or any(not 0 < len(item) <= MAX_NAME_BYTES for item in found):
        raise VerificationError(f"{where}: must be sorted, each once and not empty")
    return found


def _key(text: str, embedder: str, where: str) -> SemanticKey:
    raw = base64_strict.decode(text, f"{where}: keys")
    if not embedder or not 0 < len(raw) <= MAX_DIMENSIONS or not any(raw):
        raise VerificationError(f"{where}: keys must be of a named model and point somewhere")
    return SemanticKey(embedder=embedder, quantised=raw)


def _print(text: str, where: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != FINGERPRINT_BYTES or raw.hex() != text:
        raise VerificationError(f"{where}: fingerprints must be {FINGERPRINT_BYTES} bytes in lower-case hex")
    return raw
