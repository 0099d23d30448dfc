"""C2SP checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.tlog.checkpoint import (
    Checkpoint,
    log_origin,
    open_checkpoint,
    parse_checkpoint_text,
    sign_checkpoint,
)
from memory_audit.provenance.tlog.merkle import EMPTY_ROOT

log = PrivateKey("memaudit/log", b"l" * 32)
ROOT = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="


@given(st.integers(1, 2**40), st.binary(min_size=32, max_size=32))
def test_round_trips(size, root):
    checkpoint = Checkpoint(origin="memaudit/s/t", size=size, root=root)
    note = sign_checkpoint(checkpoint, [log])
    assert open_checkpoint(note, [log.public()], origin="memaudit/s/t", where="c") == checkpoint


def test_another_logs_checkpoint_is_refused():
    note = sign_checkpoint(Checkpoint(origin="memaudit/s/a", size=1, root=b"r" * 32), [log])
    with pytest.raises(VerificationError, match="'memaudit/s/a', expected 'memaudit/s/b'"):
        open_checkpoint(note, [log.public()], origin="memaudit/s/b", where="c")


def test_tenants_that_look_alike_have_different_origins():
    tenants = ["a b", "a%20b", "a/b", "a", "A", "ä"]
    origins = {log_origin("s", tenant) for tenant in tenants}
    assert len(origins) == len(tenants)
    assert all(" " not in origin and "\n" not in origin for origin in origins)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"o\n01\n{ROOT}\n", "tree size"),
        (f"o\n+1\n{ROOT}\n", "tree size"),
        (f"o\n-1\n{ROOT}\n", "tree size"),
        (f"o\n1_0\n{ROOT}\n", "tree size"),
        (f"o\n١\n{ROOT}\n", "tree size"),
        (f"o\n{2**40 + 1}\n{ROOT}\n", "tree size"),
        (f"o\n{'9' * 30}\n{ROOT}\n", "tree size"),
        (f"\n1\n{ROOT}\n", "three lines"),
        (f"o\n1\n{ROOT}\nextension\n", "three lines"),
        ("o\n1\n", "three lines"),
        ("o\n1\nQUFB\n", "3 bytes"),
        (f"o\n1\n{ROOT[:-2]}F=\n", "base64"),
        (f"o\n0\n{ROOT}\n", "empty tree"),
    ],
)
def test_refuses(text, problem):
    with pytest.raises(VerificationError, match=problem):
        parse_checkpoint_text(text, "c")


def test_the_empty_log_has_the_empty_root():
    checkpoint = Checkpoint(origin="o", size=0, root=EMPTY_ROOT)
    assert parse_checkpoint_text(checkpoint.text(), "c") == checkpoint
