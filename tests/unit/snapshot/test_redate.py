"""Versions dated by a wrong clock: they are not published, and one that is there is set right by who has the keys."""

from __future__ import annotations

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.keys import Keyring, generate_keys
from memory_audit.snapshot.manifest import MAX_CLOCK_SKEW_MS, MAX_GAP_MS
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.redate import redate
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, ids, keyring, make_store, open_store, remove

YEAR_MS = 365 * 86_400_000
AHEAD = NOW + YEAR_MS


@pytest.fixture
def ahead(tmp_path):
    """A store whose second version was dated by a clock that was a year ahead."""
    make_store(tmp_path / "s")
    append_entries(tmp_path / "s", [entry("acme", "e9")], keyring(), now_ms=AHEAD)
    return tmp_path / "s"


def refused(store, **options):  # noqa: ANN003
    with pytest.raises(VerificationError, match=r"manifests/2\.json: created at .* in the future of .*memaudit redate"):
        open_store(store, **options)


def test_a_version_from_the_future_is_set_right_by_a_successor(ahead):
    refused(ahead)
    refused(ahead, check_expiry=False)
    with pytest.raises(VerificationError, match="in the future"):
        verify_store(ahead, keyring().policy, now_ms=NOW)
    with pytest.raises(VerificationError, match="in the future"):
        append_entries(ahead, [entry("acme", "e10")], keyring(), now_ms=NOW)
    done = redate(ahead, keyring(), now_ms=NOW, dry_run=False)
    assert (done.version, done.created_ms, done.needed, done.published) == (2, AHEAD, True, 3)
    snapshot = open_store(ahead, now_ms=NOW)
    assert (snapshot.version, snapshot.manifest.created_ms, ids(snapshot, "acme")[-1]) == (3, NOW, "e9")
    append_entries(ahead, [entry("acme", "e10")], keyring(), now_ms=NOW + 1)
    remove(ahead, {"acme": {"e9": "harm"}}, now_ms=NOW + 2)
    assert verify_store(ahead, keyring().policy, now_ms=NOW + 3, deep=True).versions == (1, 2, 3, 4, 5)
    assert open_store(ahead, now_ms=NOW, version=2, check_expiry=False).version == 2
    vacuum(ahead, keyring(), now_ms=NOW + 4, retention_ms=0, dry_run=False)
    assert verify_store(ahead, keyring().policy, now_ms=NOW + 5, deep=True).versions == (5, 6)


def test_setting_right_is_a_dry_run_unless_told_otherwise_and_is_done_once(ahead):
    before = sorted(ahead.rglob("*"))
    assert (redate(ahead, keyring(), now_ms=NOW).needed, redate(ahead, keyring(), now_ms=NOW).published) == (True, None)
    assert sorted(ahead.rglob("*")) == before
    redate(ahead, keyring(), now_ms=NOW, dry_run=False)
    again = redate(ahead, keyring(), now_ms=NOW + 1, dry_run=False)
    assert (again.version, again.needed, again.published) == (3, False, None)


def test_a_pin_of_the_version_from_the_future_goes_on(ahead):
    pin = open_store(ahead, now_ms=AHEAD).pin()
    redate(ahead, keyring(), now_ms=NOW, pin=pin, dry_run=False)
    assert open_store(ahead, now_ms=NOW, pin=pin).version == 3


def test_who_has_no_key_gains_nothing(ahead):
    newest = ahead / "manifests" / "3.json"
    stranger = generate_keys("stranger")
    with pytest.raises(VerificationError, match="which has no role"):
        redate(ahead, stranger, now_ms=NOW, dry_run=False)
    with pytest.raises(UsageError, match="no reader would accept it"):
        redate(ahead, Keyring(policy=keyring().policy, keys=stranger.keys), now_ms=NOW, dry_run=False)
    assert not newest.exists()
    redate(ahead, keyring(), now_ms=NOW, dry_run=False)
    pin = open_store(ahead, now_ms=NOW).pin()
    newest.unlink()
    refused(ahead)  # as before, for who has seen nothing
    refused(ahead, pin=pin)
    with pytest.raises(VerificationError, match="below the pinned 3"):
        open_store(ahead, now_ms=AHEAD, pin=pin)
    with pytest.raises(VerificationError, match="below the pinned 3"):
        redate(ahead, keyring(), now_ms=NOW, pin=pin, dry_run=False)


def test_a_clock_that_is_nearly_right_is_let_be(tmp_path):
    make_store(tmp_path / "s")
    store, at = tmp_path / "s", NOW - MAX_CLOCK_SKEW_MS
    assert not redate(store, keyring(), now_ms=at).needed
    assert open_store(store, now_ms=at).version == 1
    assert redate(store, keyring(), now_ms=at - 1).needed
    with pytest.raises(VerificationError, match="in the future"):
        open_store(store, now_ms=at - 1)


def test_a_version_far_ahead_of_its_base_is_not_published_until_the_clock_was_looked_at(tmp_path):
    make_store(tmp_path / "s")
    store, late = tmp_path / "s", NOW + MAX_GAP_MS + 1
    for publish in (
        lambda now_ms: append_entries(store, [entry("acme", "new")], keyring(), now_ms=now_ms),
        lambda now_ms: remove(store, {"acme": {"e0": "harm"}}, now_ms=now_ms),
        lambda now_ms: remove(store, {"acme": {"e0": "harm"}}, now_ms=now_ms, dry_run=True),
    ):
        with pytest.raises(UsageError, match=r"version 1 is 732 days old.*memaudit redate"):
            publish(late)
    assert open_store(store, now_ms=late).version == 1  # readers take it
    assert redate(store, keyring(), now_ms=late, dry_run=False).published == 2
    append_entries(store, [entry("acme", "new")], keyring(), now_ms=late)
    append_entries(store, [entry("acme", "newer")], keyring(), now_ms=late + MAX_GAP_MS)
    assert verify_store(store, keyring().policy, now_ms=late + MAX_GAP_MS, deep=True).version == 4
