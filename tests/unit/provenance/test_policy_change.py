"""The next trust policy: keys added and revoked, thresholds raised and lowered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import dsse
from memory_audit.provenance.keys import Keyring, draw_key, generate_keys
from memory_audit.provenance.policy_change import add_key, change_threshold, revoke_key, rotate_key, usable_keys

NOWHERE = {"logs": {}, "manifests": {}}


@pytest.fixture
def keyring():
    return generate_keys()


def ids(keyring, role):
    return {key.public().key_id for key in keyring.keys[role]}


def with_keys(keyring, role, count):
    for number in range(1, count):
        keyring = add_key(keyring, role, draw_key(f"memaudit/{role}-{number}"))
    return keyring


@pytest.mark.parametrize("role", ["root", "log", "auditor"])
def test_two_of_three_must_sign(keyring, role):
    keyring = change_threshold(with_keys(keyring, role, 3), role, 2)
    assert len(keyring.signers(role)) == 3
    for kept in (keyring.keys[role][:2], keyring.keys[role][1:]):
        assert len(Keyring(policy=keyring.policy, keys={**keyring.keys, role: kept}).signers(role)) == 2
    with pytest.raises(UsageError, match=f"holds 1 usable {role} keys, the policy asks for 2"):
        Keyring(policy=keyring.policy, keys={**keyring.keys, role: keyring.keys[role][:1]}).signers(role)


@given(st.integers(1, 4), st.integers(0, 4))
def test_as_many_signatures_as_the_threshold_are_what_a_reader_takes(threshold, signing):
    keyring = change_threshold(with_keys(generate_keys(), "log", 4), "log", threshold)
    role, keys = keyring.policy.roles["log"], keyring.keys["log"][:signing]
    if not keys:
        return
    envelope = dsse.parse_envelope(dsse.seal("t", b"{}", keys), "t", max_bytes=9_999, where="f")
    if signing < threshold:
        with pytest.raises(VerificationError, match=f"signed by {signing} log keys, expected {threshold}"):
            dsse.verify_envelope(envelope, role.keys, role.threshold, "log")
    else:
        assert len(dsse.verify_envelope(envelope, role.keys, role.threshold, "log")) == signing


def test_a_writer_of_its_own_signs_for_its_principals_alone(keyring):
    own = draw_key("acme/alice")
    keyring = add_key(keyring, "writer", own, ["alice", "al"])
    assert keyring.writer_for("alice") == own
    assert keyring.writer_for("bob").name == "memaudit/writer"
    with pytest.raises(VerificationError, match="acme/alice does not speak for principal 'bob'"):
        keyring.policy.writer_key(own.public().key_id, "bob", "f")


def test_a_key_that_is_held_elsewhere_is_added_by_its_public_part(keyring):
    elsewhere = draw_key("acme/log-b")
    after = add_key(keyring, "log", elsewhere.public())
    assert elsewhere.public().key_id in after.policy.roles["log"].keys
    assert ids(after, "log") == ids(keyring, "log")


def test_a_revoked_key_signs_nothing_more_and_its_past_stays(keyring):
    keyring = with_keys(keyring, "log", 2)
    first = keyring.keys["log"][0].public()
    after = revoke_key(keyring, "log", first.key_id, logs={"o": 3}, manifests={"s": 2})
    assert first.key_id not in usable_keys(after.policy, "log")
    assert [key.name for key in after.signers("log")] == ["memaudit/log-1"]
    assert first.key_id in after.policy.leaf_keys("log", "o", 2)
    assert first.key_id not in after.policy.leaf_keys("log", "o", 3)
    assert first.key_id in after.policy.manifest_keys("log", "s", 1)
    assert first.key_id not in after.policy.manifest_keys("log", "s", 2)


def test_a_root_key_is_dropped_and_the_policy_signed_by_those_that_stay(keyring):
    keyring = change_threshold(with_keys(keyring, "root", 3), "root", 2)
    first = keyring.keys["root"][0].public().key_id
    after = revoke_key(keyring, "root", first, **NOWHERE)
    assert ids(after, "root") == after.policy.roles["root"].keys.keys() == ids(keyring, "root") - {first}
    assert keyring.policy.rotated(after.policy.envelope, "f") == after.policy


def test_the_last_keys_that_a_threshold_asks_for_are_not_revoked(keyring):
    keyring = change_threshold(with_keys(keyring, "auditor", 2), "auditor", 2)
    with pytest.raises(UsageError, match="role auditor needs 2 of its keys, and 1 would be left"):
        revoke_key(keyring, "auditor", keyring.keys["auditor"][0].public().key_id, **NOWHERE)


def test_a_threshold_counts_no_revoked_keys(keyring):
    keyring = with_keys(keyring, "log", 3)
    keyring = revoke_key(keyring, "log", keyring.keys["log"][0].public().key_id, **NOWHERE)
    with pytest.raises(UsageError, match="threshold 3 of role log, expected 1 to 2"):
        change_threshold(keyring, "log", 3)
    assert change_threshold(keyring, "log", 2).policy.roles["log"].threshold == 2


def test_a_root_threshold_that_the_folder_cannot_meet_is_not_signed(keyring):
    keyring = add_key(keyring, "root", draw_key("acme/root-b").public())
    with pytest.raises(UsageError, match="needs 2 signatures of its own root keys, and the key folder holds 1"):
        change_threshold(keyring, "root", 2)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda k: add_key(k, "writer", draw_key("w")), "say whom the writer speaks for"),
        (lambda k: add_key(k, "log", draw_key("l"), ["alice"]), "role log speaks for no principal"),
        (lambda k: add_key(k, "log", k.keys["auditor"][0]), "is in the policy already, as auditor"),
        (lambda k: rotate_key(k, "log", k.keys["log"][0], **NOWHERE), "is in the policy already, as log"),
        (lambda k: change_threshold(k, "writer", 1), "threshold of role writer is 1"),
        (lambda k: change_threshold(k, "log", 0), "expected 1 to 1"),
        (lambda k: change_threshold(k, "log", 2), "expected 1 to 1"),
        (
            lambda k: rotate_key(
                change_threshold(with_keys(k, "log", 2), "log", 2), "log", draw_key("l"), **NOWHERE
            ),
            "role log needs 2 signatures, and a rotation brings one key: add keys",
        ),
    ],
)  # fmt: skip
def test_what_no_policy_can_say_is_told(keyring, change, line):
    with pytest.raises(UsageError, match=line):
        change(keyring)
