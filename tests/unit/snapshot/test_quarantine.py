"""Quarantine: out of the live view, nothing lost, and back as it was; or removed for good."""

# ruff: noqa: ANN003 - what the tests pass is passed on

import json
import tempfile
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.entry import Parent
from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.leaf import QUARANTINE, Tombstone
from memory_audit.snapshot.attest import attest, verify_attestation
from memory_audit.snapshot.columns.tables import SignedTombstone
from memory_audit.snapshot.layout import bucket_of
from memory_audit.snapshot.manifest import PAYLOAD_TYPE, open_manifest
from memory_audit.snapshot.publishing import draft
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.purify import read_purified
from memory_audit.snapshot.publishing.redate import redate
from memory_audit.snapshot.publishing.release import quarantined_by
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.quarantine import in_force
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import (
    NOW,
    entry,
    ids,
    keyring,
    make_history,
    make_store,
    open_store,
    put_back,
    quarantine,
    remove,
    without_tiles,
)

YEARS_MS = 3 * 366 * 86_400_000


@pytest.fixture
def store(tmp_path):
    """Two tenants with four entries each; of acme e1 and e2 are in quarantine since version 2."""
    make_store(tmp_path / "s")
    quarantine(tmp_path / "s", {"acme": {"e1": "doubtful", "e2": "derived from e1"}})
    return tmp_path / "s"


def verified(store, **options):
    return verify_store(store, keyring().policy, **{"now_ms": NOW + 10, "deep": True} | options)


def held(snapshot, tenant="acme"):
    return [item.entry_id for item in snapshot.quarantined(tenant)]


def signed_rows(snapshot, tenant="acme"):
    return {item.entry.entry_id: item for item in snapshot.log(tenant).entries}


def payload(store, version):
    return json.loads(b64decode(json.loads((store / f"manifests/{version}.json").read_bytes())["payload"]))


def test_what_is_quarantined_is_not_live_and_not_lost(store):
    before, after = open_store(store, version=1), open_store(store)
    assert (ids(after, "acme"), held(after)) == (["e0", "e3"], ["e1", "e2"])
    assert (ids(after, "globex"), held(after, "globex")) == (["e0", "e1", "e2", "e3"], [])
    rows = signed_rows(before)
    assert list(after.log("acme").quarantined) == [rows["e1"], rows["e2"]]
    assert [(s.entry_id, s.reason, s.run_id, s.quarantines) for s in after.tombstones("acme")] == [
        ("e1", "doubtful", "run-1", True), ("e2", "derived from e1", "run-1", True),
    ]  # fmt: skip
    report = verified(store)
    assert (report.entries, report.quarantined, report.tombstones) == (6, 2, 2)
    live = {text for ref in after.manifest.buckets[bucket_of("acme")].data
            for text in pq.read_table(store / f"data/b={bucket_of('acme'):02x}/{ref.sha256}.parquet")["response"]
            .to_pylist()}  # fmt: skip
    assert not any("e1" in text or "e2" in text for text in live)


def test_what_is_released_is_live_as_it_was(store):
    before = open_store(store, version=1)
    released = put_back(store, {"acme": ["e1", "e2"]})
    after = open_store(store)
    assert after.log("acme").entries == before.log("acme").entries
    assert (held(after), after.tombstones("acme")) == ([], ())
    assert [(s.entry_id, s.run_id) for s in released.ended] == [("e1", "run-1"), ("e2", "run-1")]
    assert (released.published.version, released.published.entries) == (3, 8)
    report = verified(store)
    assert (report.entries, report.quarantined, report.leaves) == (8, 0, 12)
    again = put_back(store, {"acme": ["e1", "e2", "e3"]})
    assert (again.ended, again.published, open_store(store).version) == ((), None, 3)


@pytest.mark.parametrize("entries", [{"acme": ["e1", "nope"]}, {"nobody": ["e1"]}])
def test_what_is_not_in_quarantine_is_not_released(store, entries):
    with pytest.raises(UsageError, match=r"no entry 'nope' of tenant 'acme' is in quarantine|no tenant 'nobody'"):
        put_back(store, entries)
    remove(store, {"acme": {"e1": "harm"}}, now_ms=NOW + 3)
    with pytest.raises(UsageError, match="no entry 'e1' of tenant 'acme' is in quarantine, or live"):
        put_back(store, {"acme": ["e1"]})
    assert open_store(store).version == 3


def test_a_dry_run_of_either_writes_nothing(store):
    before = sorted(store.rglob("*"))
    assert not quarantine(store, {"acme": {"e0": "x"}}, dry_run=True).published
    assert [stone.entry_id for stone in put_back(store, {"acme": ["e1"]}, dry_run=True).ended] == ["e1"]
    assert sorted(store.rglob("*")) == before


def test_what_is_quarantined_can_be_removed_for_good(store):
    plan = remove(store, {"acme": {"e1": "harm", "e0": "harm"}}, now_ms=NOW + 3, dry_run=True)
    assert plan.entries == 5
    done = remove(store, {"acme": {"e1": "harm", "e0": "harm"}}, now_ms=NOW + 3)
    after = open_store(store)
    assert (ids(after, "acme"), held(after), done.entries) == (["e3"], ["e2"], 5)
    assert [(s.entry_id, s.quarantines) for s in after.tombstones("acme")] == [
        ("e2", True), ("e0", False), ("e1", False),
    ]  # fmt: skip
    assert verified(store).quarantined == 1
    with pytest.raises(UsageError, match="no live entry 'e1'"):
        quarantine(store, {"acme": {"e1": "again"}}, now_ms=NOW + 4)
    with pytest.raises(UsageError, match="no live entry 'e2'"):
        quarantine(store, {"acme": {"e2": "again"}}, now_ms=NOW + 4)


def test_ids_in_quarantine_are_taken_and_name_parents(store):
    with pytest.raises(UsageError, match="'e1' is in quarantine, from where `memaudit release`"):
        append_entries(store, [entry("acme", "e1")], keyring(), now_ms=NOW + 3)
    child = entry("acme", "child", parents=(Parent(entry_id="e1", weight_ppm=500_000),))
    append_entries(store, [child], keyring(), now_ms=NOW + 3)
    quarantine(store, {"acme": {"child": "derived from e1"}}, now_ms=NOW + 4)
    put_back(store, {"acme": ["child", "e1"]}, now_ms=NOW + 5)
    with pytest.raises(UsageError, match="'e1' is there already"):
        append_entries(store, [entry("acme", "e1")], keyring(), now_ms=NOW + 6)
    assert (ids(open_store(store), "acme"), held(open_store(store))) == (["e0", "e1", "e3", "child"], ["e2"])
    assert verified(store).entries == 8


def test_what_is_in_quarantine_stays_where_a_store_is_dated_anew(store):
    assert redate(store, keyring(), now_ms=NOW + YEARS_MS, dry_run=False).published == 3
    assert held(open_store(store, now_ms=NOW + YEARS_MS)) == ["e1", "e2"]


def test_a_vacuum_erases_what_was_removed_out_of_quarantine_and_nothing_else_of_it(store):
    assert vacuum(store, keyring(), now_ms=NOW + 3, retention_ms=0, dry_run=False).version == 3
    assert (held(open_store(store)), verified(store).versions) == (["e1", "e2"], (2, 3))
    put_back(store, {"acme": ["e1"]}, now_ms=NOW + 4)
    remove(store, {"acme": {"e2": "harm"}}, now_ms=NOW + 5)
    assert ids(open_store(store), "acme") == ["e0", "e1", "e3"]
    vacuum(store, keyring(), now_ms=NOW + 6, retention_ms=0, dry_run=False)
    assert list((store / "quarantine").rglob("*.parquet")) == []
    assert (verified(store).entries, verified(store).quarantined) == (7, 0)


def test_a_store_without_quarantine_says_nothing_of_it(tmp_path):
    make_history(tmp_path / "s")
    without_tiles(tmp_path / "s")
    for version in (1, 2, 3):
        manifest = payload(tmp_path / "s", version)
        assert manifest["format"] == "memaudit manifest v1"
        assert not any("quarantine" in bucket for bucket in manifest["buckets"])
    assert not (tmp_path / "s" / "quarantine").exists()


def test_readers_that_do_not_know_quarantine_are_told_by_the_format(store):
    put_back(store, {"acme": ["e1"]}, now_ms=NOW + 3)
    put_back(store, {"acme": ["e2"]}, now_ms=NOW + 4)
    append_entries(store, [entry("acme", "e4")], keyring(), now_ms=NOW + 5)
    without_tiles(store)
    stated = [(payload(store, n)["format"][-2:], payload(store, n)["operation"]) for n in (1, 2, 3, 4, 5)]
    assert stated == [("v1", "import"), ("v2", "quarantine"), ("v2", "release"), ("v2", "release"), ("v1", "append")]


@pytest.mark.parametrize(("change", "problem"), [
    ({"format": "memaudit manifest v1"}, "unknown member 'quarantine'"),
    ({"format": "memaudit manifest v2"}, "expected memaudit manifest v3"),
    ({"format": "memaudit manifest v9"}, "not a memaudit manifest v1, v2 or v3"),
    ({"operation": "append", "buckets": []}, "expected memaudit manifest v1"),
])  # fmt: skip
def test_a_manifest_must_say_what_it_is(store, change, problem):
    keys = [*keyring().signers("auditor"), *keyring().signers("log")]
    data = dsse.seal(PAYLOAD_TYPE, strict_json.encode(payload(store, 2) | change), keys)
    with pytest.raises(VerificationError, match=problem):
        open_manifest(data, keyring().policy, version=2, now_ms=NOW, check_expiry=False, where="manifests/2.json")


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:], None])
def test_what_is_in_quarantine_is_checked_byte_for_byte(store, damage):
    (file,) = (store / "quarantine").rglob("*.parquet")
    file.unlink() if damage is None else file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(VerificationError, match="quarantine/b="):
        verified(store, deep=False)
    with pytest.raises(VerificationError, match="quarantine/b="):
        open_store(store).entries("acme")


def test_an_attestation_says_what_a_run_quarantined(store):
    snapshot = open_store(store)
    done = read_purified(snapshot, "run-1", snapshot.manifest.parent, "quarantine")
    assert done is not None

    def signed(purified):
        return attest(
            purified, keyring(), run_id="run-1", now_ms=NOW, parameters={"alpha": "0.6"}, models={"nli": "fake"},
            score_tables={},
        )  # fmt: skip

    found = verify_attestation(signed(done), keyring().policy, "a", snapshot=snapshot)
    assert (found.operation, [item.entry_id for item in found.removed]) == ("quarantine", ["e1", "e2"])
    statement = json.loads(b64decode(json.loads(signed(done))["payload"]))
    assert statement["predicateType"] == "urn:memaudit:quarantine:v1"
    assert [item["entryId"] for item in statement["predicate"]["quarantined"]] == ["e1", "e2"]
    for lie, problem in (
        (replace(done, operation="purify"), "made by 'quarantine', expected 'purify'"),
        (replace(done, removed=done.removed[1:]), "entry 'e1' of tenant 'acme' is quarantined in one of two"),
    ):
        with pytest.raises(VerificationError, match=problem):
            verify_attestation(signed(lie), keyring().policy, "a", snapshot=snapshot)


def test_what_a_run_has_in_quarantine_is_found_by_its_id(store):
    quarantine(store, {"globex": {"e3": "doubtful"}}, now_ms=NOW + 3)
    put_back(store, {"acme": ["e2"]}, now_ms=NOW + 4)
    assert quarantined_by(open_store(store), "run-1") == {"acme": {"e1"}, "globex": {"e3"}}
    assert quarantined_by(open_store(store), "another") == {}


def stone(at, names, entry_id="m", *, keeps=False):
    body = Tombstone(
        tenant="acme", entry_id=entry_id, removed_index=names, removed_leaf_hash=bytes(32), reason="x", run_id="r",
        created_at_ms=0, extra=QUARANTINE if keeps else {},
    )  # fmt: skip
    return SignedTombstone(tombstone=body, index=at, signatures=())


def test_in_force_is_what_no_later_tombstone_ended():
    held, out, other = stone(5, 1, keeps=True), stone(6, 5), stone(7, 2)
    assert in_force([held, other]) == [held, other]
    assert in_force([held, out, other]) == [other]
    assert in_force([held, stone(6, 1), other]) == [stone(6, 1), other]
    assert in_force([held, out, stone(7, 1, keeps=True)]) == [stone(7, 1, keeps=True)]
    assert in_force([held, out, stone(7, 1)]) == [stone(7, 1)]


@pytest.mark.parametrize(
    "stones",
    [
        [stone(5, 1), stone(6, 1)],
        [stone(5, 1), stone(6, 1, keeps=True)],
        [stone(5, 1, keeps=True), stone(6, 1, keeps=True)],
        [stone(5, 1, keeps=True), stone(6, 1), stone(7, 1)],
        [stone(5, 1, keeps=True), stone(6, 5, "other")],
    ],
)
def test_no_memory_is_removed_twice_or_released_under_another_id(stones):
    with pytest.raises(VerificationError, match=r"which is already removed|releases 'other', leaf 5 holds 'm'"):
        in_force(stones)


TENANTS = ("acme", "globex")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["quarantine", "release", "remove", "append"]),
        st.sets(st.tuples(st.sampled_from(TENANTS), st.integers(0, 6)), min_size=1, max_size=5),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(STEPS, st.booleans())
def test_any_order_of_quarantines_releases_removals_and_appends_leaves_what_the_definition_says(steps, old):
    """Files hold two rows, so that entries go back into the first, a middle and the last of several.

    An old store is one that a program without tiles has written: it goes on in tiles, and no entry is lost.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "ROWS_PER_FILE", 2)
        patch.setattr("memory_audit.snapshot.publishing.publish.MERGE_BELOW_ROWS", 2)
        store = Path(folder) / "s"
        make_store(store, tenants=TENANTS, size=7)
        if old:
            without_tiles(store)
        rows = {tenant: signed_rows(open_store(store), tenant) for tenant in TENANTS}
        state = {(tenant, name): "live" for tenant in TENANTS for name in rows[tenant]}
        for number, (step, chosen) in enumerate(steps):
            names = {(tenant, f"e{index}") for tenant, index in chosen}
            wanted = {"quarantine": {"live"}, "release": {"held"}, "remove": {"live", "held"}, "append": {"live"}}[step]
            mine: dict[str, list[str]] = {}
            for tenant, name in sorted(name for name in names if state[name] in wanted):
                mine.setdefault(tenant, []).append(name)
            if not mine:
                continue
            now = NOW + 1 + number
            if step == "append":
                new = [entry(tenant, f"n{number}") for tenant in mine]
                append_entries(store, new, keyring(), now_ms=now)
                for one in new:
                    rows[one.tenant] |= {one.entry_id: signed_rows(open_store(store), one.tenant)[one.entry_id]}
                    state[one.tenant, one.entry_id] = "live"
                continue
            if step == "release":
                put_back(store, mine, now_ms=now)
            else:
                act = quarantine if step == "quarantine" else remove
                act(store, {tenant: dict.fromkeys(mine[tenant], "why") for tenant in mine}, now_ms=now)
            after = {"quarantine": "held", "release": "live", "remove": "gone"}[step]
            state |= {(tenant, name): after for tenant in mine for name in mine[tenant]}
        snapshot = open_store(store)
        for tenant in TENANTS:
            log = snapshot.log(tenant)
            for found, what in ((log.entries, "live"), (log.quarantined, "held")):
                assert list(found) == [row for name, row in rows[tenant].items() if state[tenant, name] == what]
        assert verified(store, workers=1).quarantined == sum(what == "held" for what in state.values())


@settings(max_examples=6, deadline=None)
@given(st.sets(st.tuples(st.sampled_from(TENANTS), st.integers(0, 6)), min_size=1))
def test_a_quarantine_and_its_release_leave_the_live_view_as_it_was(chosen):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "ROWS_PER_FILE", 3)
        store = Path(folder) / "s"
        make_store(store, tenants=TENANTS, size=7)
        before = open_store(store)
        named: dict[str, dict[str, str]] = {}
        for tenant, index in chosen:
            named.setdefault(tenant, {})[f"e{index}"] = "doubtful"
        quarantine(store, named)
        put_back(store, quarantined_by(open_store(store), "run-1"))
        after = open_store(store)
        for tenant in TENANTS:
            assert after.log(tenant).entries == before.log(tenant).entries
        assert verified(store, workers=1).quarantined == 0
