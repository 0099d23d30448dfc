"""Purification: tombstones in the log, a smaller live view, and the version before still readable."""

import pytest

from memory_audit.entry import MAX_TIME_MS
from memory_audit.errors import StalePlanError, UsageError
from memory_audit.provenance.keys import Keyring
from memory_audit.provenance.tlog import merkle
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.purify import MAX_REMOVED, MAX_REMOVED_BYTES, purify
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, ids, keyring, make_history, make_store, open_store, remove


def test_removed_entries_leave_the_live_view_and_stay_in_the_log(tmp_path):
    make_store(tmp_path / "s")
    audited = open_store(tmp_path / "s")
    hashes = audited.log("acme").leaf_hashes
    purified = remove(tmp_path / "s", {"acme": {"e3": "harm", "e1": "harm too"}})
    snapshot = open_store(tmp_path / "s")
    assert ids(snapshot, "acme") == ["e0", "e2"]
    assert ids(snapshot, "globex") == ["e0", "e1", "e2", "e3"]
    assert [(s.entry_id, s.removed_index, s.reason, s.run_id) for s in snapshot.tombstones("acme")] == [
        ("e1", 1, "harm too", "run-1"),
        ("e3", 3, "harm", "run-1"),
    ]
    assert [item.removed_leaf_hash for item in snapshot.tombstones("acme")] == [hashes[1], hashes[3]]
    assert snapshot.log("acme").leaf_hashes[:4] == hashes
    assert (purified.version, purified.digest, purified.entries) == (2, snapshot.digest, 6)
    assert purified.audited_digest == audited.digest
    assert snapshot.manifest.run_id == "run-1"
    assert dict(snapshot.manifest.config) == {"alpha": "0.6"}


def test_the_purified_log_is_consistent_with_the_audited_one(tmp_path):
    make_store(tmp_path / "s")
    before = open_store(tmp_path / "s").checkpoint("acme")
    remove(tmp_path / "s", {"acme": {"e1": "harm"}})
    log = open_store(tmp_path / "s").log("acme")
    proof = merkle.consistency_proof(log.leaf_hashes, before.size)
    merkle.verify_consistency(before.size, log.checkpoint.size, proof, before.root, log.checkpoint.root)


def test_a_dry_run_tells_what_it_would_do_and_writes_nothing(tmp_path):
    make_store(tmp_path / "s")
    before = sorted(path for path in (tmp_path / "s").rglob("*"))
    plan = purify(
        tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "harm"}}, keyring(), run_id="r", now_ms=NOW,
        config={}, models={}, dry_run=True,
    )  # fmt: skip
    assert (plan.published, plan.digest, plan.version, plan.entries) == (False, None, 2, 7)
    assert [item.entry_id for item in plan.removed] == ["e1"]
    assert sorted(path for path in (tmp_path / "s").rglob("*")) == before


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("removals", "problem"),
    [
        ({}, "nothing to remove"),
        ({"acme": {}}, "nothing to remove"),
        ({"acme": {"nope": "x"}}, "no live entry 'nope'"),
        ({"nobody": {"e1": "x"}}, "no tenant 'nobody'"),
        ({"acme": {"e1": ""}}, "reason is empty"),
    ],
)
def test_bad_removals_are_a_usage_error(tmp_path, removals, problem, dry_run):
    make_store(tmp_path / "s")
    with pytest.raises(UsageError, match=problem):
        remove(tmp_path / "s", removals, dry_run=dry_run)
    assert open_store(tmp_path / "s").version == 1


def test_an_entry_is_not_removed_twice_and_does_not_come_back(tmp_path):
    make_history(tmp_path / "s")
    with pytest.raises(UsageError, match="no live entry 'e1'"):
        remove(tmp_path / "s", {"acme": {"e1": "again"}})
    with pytest.raises(UsageError, match="'e1' was removed and may not come back"):
        append_entries(tmp_path / "s", [entry("acme", "e1")], keyring(), now_ms=NOW)


def test_a_store_that_moved_on_makes_the_plan_stale(tmp_path):
    make_store(tmp_path / "s")
    audited = open_store(tmp_path / "s")
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    with pytest.raises(StalePlanError, match="at version 2, the audit read version 1"):
        purify(
            tmp_path / "s", audited, {"acme": {"e1": "harm"}}, keyring(), run_id="r", now_ms=NOW, config={}, models={}
        )


def test_a_missing_auditor_key_is_found_by_a_dry_run(tmp_path):
    make_store(tmp_path / "s")
    without = Keyring(policy=keyring().policy, keys={**keyring().keys, "auditor": ()})
    with pytest.raises(UsageError, match="0 usable auditor keys"):
        purify(
            tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "harm"}}, without, run_id="r", now_ms=NOW,
            config={}, models={}, dry_run=True,
        )  # fmt: skip


def test_tombstones_carry_what_later_stages_add(tmp_path):
    make_store(tmp_path / "s")
    purify(
        tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "harm"}}, keyring(), run_id="r", now_ms=NOW,
        config={}, models={}, extra={"acme": {"e1": {"hazard": "skip validation"}}},
    )  # fmt: skip
    assert dict(open_store(tmp_path / "s").tombstones("acme")[0].extra) == {"hazard": "skip validation"}


def test_a_tenant_can_lose_all_its_entries(tmp_path):
    make_store(tmp_path / "s", tenants=("acme",), size=2)
    remove(tmp_path / "s", {"acme": {"e0": "x", "e1": "x"}})
    assert open_store(tmp_path / "s").entries("acme") == ()
    append_entries(tmp_path / "s", [entry("acme", "e2")], keyring(), now_ms=NOW + 3)
    assert ids(open_store(tmp_path / "s"), "acme") == ["e2"]
    assert verify_store(tmp_path / "s", keyring().policy, now_ms=NOW + 3, deep=True).tombstones == 2


def test_two_purifications_in_a_row_verify(tmp_path):
    make_history(tmp_path / "s")
    remove(tmp_path / "s", {"globex": {"e0": "x"}, "acme": {"e0": "x"}}, now_ms=NOW + 4)
    report = verify_store(tmp_path / "s", keyring().policy, now_ms=NOW + 4, deep=True)
    assert (report.version, report.tombstones, report.entries) == (4, 4, 6)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config": {str(number): "" for number in range(257)}}, "'config' must be at most 256 texts of 65536 bytes"),
        ({"models": {str(number): "" for number in range(257)}}, "'models' must be at most 256 texts of 65536 bytes"),
        ({"expires_ms": MAX_TIME_MS + 1}, "'expires_ms' is 253402300800001"),
    ],
)
def test_what_no_manifest_can_state_is_found_by_a_dry_run_and_bricks_no_store(tmp_path, changes, problem, dry_run):
    make_store(tmp_path / "s")
    before = sorted((tmp_path / "s").rglob("*"))
    options = {"run_id": "r", "now_ms": NOW, "config": {}, "models": {}} | changes
    with pytest.raises(UsageError, match=rf"version 2 of .* is not published, .*: manifests/2.json: {problem}"):
        purify(tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "x"}}, keyring(), dry_run=dry_run, **options)
    assert sorted((tmp_path / "s").rglob("*")) == before
    assert remove(tmp_path / "s", {"acme": {"e1": "x"}}).version == 2


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("limit", ["MAX_REMOVED", "MAX_REMOVED_BYTES"])
def test_more_removals_than_can_be_attested_are_refused_before_they_are_published(
    tmp_path, monkeypatch, limit, dry_run
):
    make_store(tmp_path / "s")
    monkeypatch.setattr(f"memory_audit.snapshot.publishing.purify.{limit}", 1)
    with pytest.raises(
        UsageError, match=r"2 removals, which take \d+ bytes .* can be attested; audit and purge a part"
    ):
        remove(tmp_path / "s", {"acme": {"e1": "x"}, "globex": {"e1": "x"}}, dry_run=dry_run)
    assert open_store(tmp_path / "s").version == 1


def test_what_can_be_removed_at_once_fits_into_an_attestation():
    settings = 32 << 20
    assert (MAX_REMOVED_BYTES + MAX_REMOVED + settings) * 4 / 3 < MAX_ATTESTATION_BYTES
