"""The trust policy: roles, thresholds, rotation, revocation."""

import pickle
from types import SimpleNamespace

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict, dsse, strict_json
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.tlog.checkpoint import Checkpoint, sign_checkpoint
from memory_audit.provenance.trust_policy import PAYLOAD_TYPE, Revocation, Role, TrustPolicy, sign_policy


def key(name):
    return PrivateKey(name, name.encode().ljust(32, b"."))


def role(*keys, threshold=1, principals=None):  # noqa: ANN002
    public = {item.public().key_id: item.public() for item in keys}
    speaks = {key_id: frozenset(principals) for key_id in public} if principals else {}
    return Role(threshold=threshold, keys=public, principals=speaks)


def roles(**changes):  # noqa: ANN003
    return {
        "root": role(key("r1"), key("r2"), key("r3"), threshold=2),
        "writer": role(key("w1"), principals=["*"]),
        "log": role(key("l1")),
        "auditor": role(key("a1")),
    } | changes


def policy(**changes):  # noqa: ANN003
    options = {"version": 1, "roles": roles(), "revoked": {}, "root_keys": [key("r1"), key("r2")]}
    return sign_policy(**(options | changes))


def test_a_policy_round_trips_and_pickles():
    made = policy()
    again = TrustPolicy.read(made.envelope, "p")
    assert again == made
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301
    assert again.roles["root"].threshold == 2


def test_too_few_roots_are_refused():
    with pytest.raises(VerificationError, match="signed by 1 root keys, expected 2"):
        policy(root_keys=[key("r1")])


def test_one_root_signing_twice_counts_once():
    with pytest.raises(VerificationError, match="signed by 1 root keys, expected 2"):
        policy(root_keys=[key("r1"), key("r1")])


def test_a_stranger_among_the_first_roots_is_refused():
    with pytest.raises(VerificationError, match="has no role root"):
        policy(root_keys=[key("r1"), key("r2"), key("stranger")])


def test_rotation_needs_the_thresholds_of_both_policies():
    old = policy()
    new_roots = role(key("n1"), key("n2"), threshold=2)
    options = {"version": 2, "roles": roles(root=new_roots), "previous": old}
    rotated = policy(**options, root_keys=[key("r1"), key("r3"), key("n1"), key("n2")])
    assert (rotated.version, old.rotated(rotated.envelope, "p").digest) == (2, rotated.digest)
    assert TrustPolicy.read(rotated.envelope, "p") == rotated
    with pytest.raises(VerificationError, match="root keys of policy 1, expected 2"):
        policy(**options, root_keys=[key("r1"), key("n1"), key("n2")])
    with pytest.raises(VerificationError, match="signed by 1 root keys, expected 2"):
        policy(**options, root_keys=[key("r1"), key("r2"), key("n1")])
    with pytest.raises(VerificationError, match="which has no role root"):
        policy(**options, root_keys=[key("r1"), key("r2"), key("n1"), key("n2"), key("stranger")])


@pytest.mark.parametrize("version", [1, 3])
def test_rotation_goes_one_version_at_a_time(version):
    with pytest.raises(VerificationError, match="expected 2"):
        policy(version=version, previous=policy())


def test_a_key_has_one_role():
    with pytest.raises(VerificationError, match="two roles"):
        policy(roles=roles(auditor=role(key("l1"))))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"log": role(key("l1"), threshold=2)}, "threshold"),
        ({"log": role(key("l1"), threshold=0)}, "threshold"),
        ({"writer": role(key("w1"), key("w2"), principals=["*"], threshold=2)}, "one writer"),
        ({"log": role()}, "threshold 1 of 0"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(changes, problem):
    with pytest.raises(VerificationError, match=problem):
        policy(roles=roles(**changes))


def test_low_order_keys_are_refused_in_a_policy():
    payload = strict_json.decode(
        dsse.parse_envelope(policy().envelope, PAYLOAD_TYPE, max_bytes=10**6, where="p").payload,
        max_bytes=10**6,
        where="p",
    )
    weak = SimpleNamespace(name="weak", raw=b"\x01" + b"\x00" * 31)
    note_id = type(key("x").public()).note_id.fget(weak)
    material = base64_strict.encode(b"\x01" + weak.raw)
    payload["roles"]["log"]["keys"] = [{"vkey": f"weak+{note_id.hex()}+{material}"}]
    data = dsse.seal(PAYLOAD_TYPE, strict_json.encode(payload), [key("r1"), key("r2")])
    with pytest.raises(VerificationError, match="prime-order group"):
        TrustPolicy.read(data, "p")


def test_a_writer_speaks_only_for_its_principals():
    made = policy(roles=roles(writer=role(key("w1"), principals=["alice"])))
    key_id = key("w1").public().key_id
    assert made.writer_key(key_id, "alice", "x").name == "w1"
    with pytest.raises(VerificationError, match="does not speak for principal 'bob'"):
        made.writer_key(key_id, "bob", "x")
    with pytest.raises(VerificationError, match="no role writer"):
        made.writer_key(key("l1").public().key_id, "alice", "x")


def test_a_revoked_key_counts_below_its_position_only():
    revoked = {key("l1").public().key_id: Revocation(logs={"memaudit/s/t": 5}, manifests={"s": 3})}
    made = policy(roles=roles(log=role(key("l1"), key("l2"))), revoked=revoked)
    old, new = key("l1").public().key_id, key("l2").public().key_id
    assert set(made.manifest_keys("log", "s", 2)) == {old, new}
    assert set(made.manifest_keys("log", "s", 3)) == {new}
    assert set(made.manifest_keys("log", "another", 1)) == {new}
    assert made.first_refused_index(old, "memaudit/s/t") == 5
    assert made.first_refused_index(old, "memaudit/s/u") == 0
    assert made.first_refused_index(new, "memaudit/s/t") > 10**9
    for size, accepted in ((5, True), (6, False)):
        note = sign_checkpoint(Checkpoint(origin="memaudit/s/t", size=size, root=b"r" * 32), [key("l1")])
        if accepted:
            assert made.open_checkpoint(note, origin="memaudit/s/t", where="c").size == size
        else:
            with pytest.raises(VerificationError, match="signed by 0 known keys"):
                made.open_checkpoint(note, origin="memaudit/s/t", where="c")


@pytest.mark.parametrize("name", ["r1", "stranger"])
def test_root_keys_and_strangers_cannot_be_revoked(name):
    with pytest.raises(VerificationError, match="root, in no role"):
        policy(revoked={key(name).public().key_id: Revocation(logs={}, manifests={})})


def test_no_changed_byte_of_a_policy_goes_unseen():
    data = policy().envelope
    for position in range(0, len(data), 5):
        bad = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(VerificationError):
            TrustPolicy.read(bad, "p")
