"""Hypothesis strategies that several tests draw from."""

from __future__ import annotations

from hypothesis import strategies as st

from memory_audit.entry import Entry, Parent
from memory_audit.provenance.cbor import encode_text


def is_nfc(text):
    try:
        encode_text(text)
    except ValueError:
        return False
    return True


NAMES = st.text(min_size=1, max_size=12).filter(is_nfc)
TEXTS = st.text(max_size=40).filter(is_nfc)
ENTRIES = st.builds(
    Entry,
    tenant=NAMES,
    entry_id=NAMES.map(lambda value: "e" + value if is_nfc("e" + value) else "e"),
    principal=NAMES,
    source=st.sampled_from(["user", "agent", "tool", "external"]),
    request=TEXTS,
    response=TEXTS,
    created_at_ms=st.integers(0, 10**13),
    parents=st.lists(st.integers(0, 10**6), max_size=3).map(
        lambda weights: tuple(Parent(entry_id=f"p{n}", weight_ppm=weight) for n, weight in enumerate(weights))
    ),
    metadata=st.dictionaries(NAMES, TEXTS, max_size=3),
)
