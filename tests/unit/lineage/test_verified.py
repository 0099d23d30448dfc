"""Lineage comes from verified snapshots only, and follows the store forwards only."""

import pytest

from memory_audit.entry import Parent
from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import TrustRules
from memory_audit.lineage.verified import Standing, VerifiedLineage
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot
from tests.unit.snapshot.stores import (
    NOW,
    STORE_ID,
    entry,
    keyring,
    make_history,
    make_store,
    open_store,
    put_back,
    quarantine,
    remove,
)

RULES = TrustRules()


def drawn(tenant, entry_id, parent, weight_ppm=900_000, **changes):  # noqa: ANN003
    return entry(tenant, entry_id, source="agent", parents=(Parent(entry_id=parent, weight_ppm=weight_ppm),), **changes)


def seen(lineage):
    return dict(lineage.dag.labels()), [lineage.dag.path(name) for name, _ in lineage.dag.labels()]


def test_following_the_store_equals_reading_it_afresh(tmp_path):
    """An append, a purification of an old and of a just appended entry: the followed lineage misses nothing."""
    path = tmp_path / "store"
    make_store(path, tenants=("acme",))
    followed = VerifiedLineage(open_store(path), "acme", RULES)
    assert {label for _, label in followed.dag.labels()} == {"trusted"}
    append_entries(
        path, [drawn("acme", "d1", "e1"), drawn("acme", "d2", "d1"), drawn("acme", "d3", "e2"),
               drawn("acme", "d4", "e0")],
        keyring(), now_ms=NOW + 1,
    )  # fmt: skip
    followed.advance(open_store(path))
    remove(path, {"acme": {"e1": "harm", "d3": "harm"}})
    append_entries(path, [drawn("acme", "d5", "d3")], keyring(), now_ms=NOW + 3)
    followed.advance(open_store(path))
    fresh = VerifiedLineage(open_store(path), "acme", RULES)
    assert seen(followed) == seen(fresh)
    assert dict(fresh.dag.labels()) == {
        "e0": "trusted", "e2": "trusted", "e3": "trusted", "d1": "derived-untrusted", "d2": "derived-untrusted",
        "d4": "trusted", "d5": "derived-untrusted",
    }  # fmt: skip
    assert followed.standing == fresh.standing
    for lineage in (followed, fresh):
        assert lineage.entry("e1") is None
        assert lineage.entry("d1").entry_id == "d1"
        assert lineage.dag.path("d2")[0].removed


def test_a_quarantine_is_followed_in_and_out(tmp_path):
    """Quarantined, released, quarantined again and removed: at each look as if read afresh."""
    path = tmp_path / "store"
    make_store(path, tenants=("acme",))
    append_entries(path, [drawn("acme", "d1", "e1"), drawn("acme", "d2", "d1")], keyring(), now_ms=NOW + 1)
    followed = VerifiedLineage(open_store(path), "acme", RULES)
    for act, label in (
        (lambda: quarantine(path, {"acme": {"e1": "doubtful"}}, now_ms=NOW + 2), "derived-untrusted"),
        (lambda: put_back(path, {"acme": ["e1"]}, now_ms=NOW + 3), "trusted"),
        (lambda: quarantine(path, {"acme": {"e1": "doubtful"}}, now_ms=NOW + 4), "derived-untrusted"),
        (lambda: remove(path, {"acme": {"e1": "harm"}}, now_ms=NOW + 5), "derived-untrusted"),
    ):
        act()
        followed.advance(open_store(path))
        assert seen(followed) == seen(VerifiedLineage(open_store(path), "acme", RULES))
        assert followed.dag.label("d2") == label
        assert (followed.entry("e1") is None) == (label != "trusted")


def test_an_entry_appended_and_removed_between_two_looks_still_taints(tmp_path):
    path = tmp_path / "store"
    make_store(path, tenants=("acme",))
    followed = VerifiedLineage(open_store(path), "acme", RULES)
    append_entries(path, [entry("acme", "x")], keyring(), now_ms=NOW + 1)
    append_entries(path, [drawn("acme", "y", "x")], keyring(), now_ms=NOW + 2)
    remove(path, {"acme": {"x": "harm"}}, now_ms=NOW + 3)
    followed.advance(open_store(path))
    assert followed.dag.label("y") == "derived-untrusted"
    assert seen(followed) == seen(VerifiedLineage(open_store(path), "acme", RULES))


def test_what_is_not_a_verified_snapshot_is_refused(tmp_path):
    make_store(tmp_path / "store")

    class Lookalike:
        version, store_id = 1, STORE_ID

    with pytest.raises(TypeError, match="read from a VerifiedSnapshot, not from Lookalike"):
        VerifiedLineage(Lookalike(), "acme", RULES)


def test_an_older_version_is_refused(tmp_path):
    path = tmp_path / "store"
    make_history(path)
    lineage = VerifiedLineage(open_store(path), "acme", RULES)
    with pytest.raises(StalePlanError, match="older than version 3"):
        lineage.advance(open_store(path, version=2))


def test_another_store_is_refused(tmp_path):
    make_store(tmp_path / "store")
    lineage = VerifiedLineage(open_store(tmp_path / "store"), "acme", RULES)
    create_store(tmp_path / "other", [entry("acme", "e0")], keyring(), now_ms=NOW, store_id="cd" * 16)
    with pytest.raises(VerificationError, match="the lineage is of store abab"):
        lineage.advance(open_store(tmp_path / "other"))


def test_a_rewritten_log_of_the_same_store_is_refused_and_changes_nothing(tmp_path):
    """Keys stolen, history replaced under the same store id: all signatures hold, the lineage still notices."""
    make_store(tmp_path / "store", tenants=("acme",))
    lineage = VerifiedLineage(open_store(tmp_path / "store"), "acme", RULES)
    before = seen(lineage)
    others = [entry("acme", f"other{number}") for number in range(6)]
    create_store(tmp_path / "other", others, keyring(), now_ms=NOW, store_id=STORE_ID)
    with pytest.raises(VerificationError, match="does not continue the one"):
        lineage.advance(open_store(tmp_path / "other"))
    assert seen(lineage) == before


def test_an_unknown_tenant_is_refused(tmp_path):
    make_store(tmp_path / "store")
    with pytest.raises(UsageError, match="no tenant 'nobody'"):
        VerifiedLineage(open_store(tmp_path / "store"), "nobody", RULES)


def test_a_store_by_unknown_keys_never_becomes_lineage(tmp_path):
    create_store(tmp_path / "store", [entry("acme", "e0")], generate_keys("mallory"), now_ms=NOW)
    with pytest.raises(VerificationError):
        VerifiedLineage(open_snapshot(tmp_path / "store", keyring().policy, now_ms=NOW), "acme", RULES)


STANDING = Standing(store_id=STORE_ID, version=4, created_ms=NOW, expires_ms=NOW + 1_000)


@pytest.mark.parametrize(
    ("now_ms", "max_age_s", "newest", "why"),
    [
        (NOW + 1_000, None, None, None),
        (NOW + 1_001, None, None, "expired"),
        (NOW - 3_600_000, None, None, "the clock says"),
        (NOW + 999, 0, None, "is 0 s old, at most 0 s"),
        (NOW, 0, 4, None),
        (NOW, None, 5, "version 5 is published"),
    ],
)
def test_staleness_is_told_in_one_line(now_ms, max_age_s, newest, why):
    found = STANDING.stale(now_ms=now_ms, max_age_s=max_age_s, newest_version=newest)
    assert (found is None) if why is None else (found is not None and why in found)


def test_following_a_purge_of_a_whole_chain_judges_each_entry_once(tmp_path, monkeypatch):
    path = tmp_path / "store"
    make_store(path, tenants=("acme",))
    chain = [drawn("acme", f"d{n}", f"d{n - 1}" if n else "e0") for n in range(200)]
    append_entries(path, chain, keyring(), now_ms=NOW + 1)
    followed = VerifiedLineage(open_store(path), "acme", RULES)
    remove(path, {"acme": {item.entry_id: "descends" for item in chain}})
    judged = []
    monkeypatch.setattr(
        Lineage, "_judge", lambda self, node, judge=Lineage._judge: (judged.append(node), judge(self, node))[1]
    )
    followed.advance(open_store(path))
    assert len(judged) <= len(chain)
    assert seen(followed) == seen(VerifiedLineage(open_store(path), "acme", RULES))
