"""Keys change hands while a store lives: the past verifies under the new policy, the old keys sign nothing more."""

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.keys import Keyring, draw_key
from memory_audit.provenance.policy_change import rotate_key
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.provenance.trust_policy import Role, sign_policy
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.purify import purify
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, keyring, make_history, open_store


def rotated(store, role):
    """The keyring after `role`'s key is revoked as of the store's newest version."""
    snapshot = open_store(store)
    logs = {log_origin(snapshot.store_id, tenant): ref.size for tenant, ref in snapshot.log_refs.items()}
    return rotate_key(
        keyring(), role, draw_key(f"memaudit/{role}-2"), logs=logs, manifests={snapshot.store_id: snapshot.version + 1}
    )


@pytest.mark.parametrize("role", ["writer", "log", "auditor"])
def test_a_store_lives_on_under_the_next_policy(tmp_path, role):
    store = tmp_path / "s"
    make_history(store)
    keys = rotated(store, role)
    append_entries(store, [entry("acme", "later")], keys, now_ms=NOW + 5)
    snapshot = open_snapshot(store, keys.policy, now_ms=NOW + 6)
    purify(
        store, snapshot, {"acme": {"e0": "harm", "later": "harm"}}, keys, run_id="r", now_ms=NOW + 7, config={},
        models={},
    )  # fmt: skip
    report = verify_store(store, keys.policy, now_ms=NOW + 8, deep=True)
    assert (report.version, report.versions) == (5, (1, 2, 3, 4, 5))
    with pytest.raises(VerificationError, match=r"installed policy is 1|under another or newer policy"):
        open_store(store)


@pytest.mark.parametrize("role", ["writer", "log", "auditor"])
def test_the_revoked_key_signs_nothing_more(tmp_path, role):
    store = tmp_path / "s"
    make_history(store)
    keys = rotated(store, role)
    thief = Keyring(policy=keyring().policy, keys={**keys.keys, role: keyring().keys[role]})
    if role == "auditor":
        purify(store, open_store(store), {"acme": {"e0": "x"}}, thief, run_id="r", now_ms=NOW + 5, config={}, models={})
    else:
        append_entries(store, [entry("acme", "later")], thief, now_ms=NOW + 5)
    with pytest.raises(VerificationError, match=r"revoke"):
        open_snapshot(store, keys.policy, now_ms=NOW + 6).entries("acme")
    assert open_snapshot(store, keys.policy, now_ms=NOW + 6, version=3).entries("acme")


def test_a_root_rotation_needs_and_replaces_the_root_key(tmp_path):
    keys = rotate_key(keyring(), "root", draw_key("memaudit/root-2"), logs={}, manifests={})
    assert [key.name for key in keys.keys["root"]] == ["memaudit/root-2"]
    assert keyring().policy.rotated(keys.policy.envelope, "p").version == 2
    without = Keyring(policy=keyring().policy, keys={**keyring().keys, "root": ()})
    with pytest.raises(UsageError, match="0 usable root keys"):
        rotate_key(without, "log", draw_key("x"), logs={}, manifests={})


@pytest.mark.parametrize("role", ["root", "auditor"])
def test_a_rotation_never_lowers_a_threshold(role):
    first = keyring()
    second = PrivateKey.generate(f"memaudit/{role}-b")
    public = second.public()
    two = Role(threshold=2, keys={**first.policy.roles[role].keys, public.key_id: public})
    policy = sign_policy(
        version=2, roles={**first.policy.roles, role: two}, revoked={}, previous=first.policy,
        root_keys=[*first.keys["root"], second] if role == "root" else list(first.keys["root"]),
    )  # fmt: skip
    keys = Keyring(policy=policy, keys={**first.keys, role: (*first.keys[role], second)})
    with pytest.raises(UsageError, match=f"role {role} needs 2 signatures"):
        rotate_key(keys, role, draw_key("memaudit/new"), logs={}, manifests={})
