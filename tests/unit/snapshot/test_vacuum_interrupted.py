"""A vacuum that was stopped anywhere is completed by the next one, and takes nothing from who is about to publish."""

import errno
import os
import shutil
import threading
from contextlib import suppress
from itertools import count

import pyarrow.parquet as pq
import pytest

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.snapshot.layout import hold
from memory_audit.snapshot.publishing import publish
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, Killed, broken_os, entry, ids, keyring, make_history, open_store, remove

LATER = NOW + 1_000
MOMENTS = pytest.mark.parametrize("moment", ["before", "after"])


def erase(store, now_ms=LATER):
    return vacuum(store, keyring(), now_ms=now_ms, retention_ms=0, dry_run=False)


def files(store):
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


def stored_ids(store):
    """Ids of the entries in every data file; a half-written file might hold any."""
    assert not list(store.rglob("*.part"))
    return {
        row for path in store.glob("data/*/*.parquet") for row in pq.read_table(path).column("entry_id").to_pylist()
    }


def just_written(store):
    for path in store.rglob("*"):
        os.utime(path, ns=(LATER * 1_000_000, LATER * 1_000_000))


def killed_everywhere(tmp_path, moment, action):
    """A store with a history for each file operation of `action`, in which that was killed there just now."""
    make_history(tmp_path / "template")
    for number in count():
        store = shutil.copytree(tmp_path / "template", tmp_path / f"killed-{number}")
        with pytest.MonkeyPatch.context() as patch:
            fake = broken_os(patch, number, after=moment == "after")
            with suppress(Killed):
                action(store)
        if fake.calls <= number:
            assert number > 10
            return
        just_written(store)
        yield store


@MOMENTS
def test_the_same_command_completes_a_vacuum_killed_at_any_operation(tmp_path, moment):
    make_history(tmp_path / "undisturbed")
    undisturbed = erase(tmp_path / "undisturbed")
    for store in killed_everywhere(tmp_path, moment, erase):
        published = open_store(store, now_ms=LATER).version == undisturbed.version
        result = erase(store, LATER + 1)
        assert (result.version, result.stays) == (None if published else undisturbed.version, {})
        assert files(store) == files(tmp_path / "undisturbed")
        assert stored_ids(store).isdisjoint({"e9"})
        report = verify_store(store, keyring().policy, now_ms=LATER + 1, deep=True)
        assert (report.versions, report.leftovers) == ((3, 4), ())
        assert erase(store, LATER + 2).files == ()


@MOMENTS
def test_a_vacuum_is_completed_whatever_the_age_of_files_where_other_machines_may_write(tmp_path, moment, shared_disk):
    for store in killed_everywhere(tmp_path, moment, erase):
        result = erase(store, LATER + 1)
        assert all(name.startswith("scratch/") for name in result.stays)  # of its manifest, which has no text
        for name in result.stays:
            (store / name).unlink()
        assert "e9" not in stored_ids(store)
        assert verify_store(store, keyring().policy, now_ms=LATER + 1, deep=True).leftovers == ()


@MOMENTS
def test_removed_text_in_what_a_killed_publisher_left_is_erased(tmp_path, moment):
    def append(store, text="first"):
        append_entries(store, [entry("acme", "e4", response=text)], keyring(), now_ms=NOW + 3)

    for store in killed_everywhere(tmp_path, moment, append):
        if open_store(store).version == 3:
            append(store, "as dumped again")  # another file than the one that may be left
        remove(store, {"acme": {"e4": "harm"}}, now_ms=NOW + 4)
        assert erase(store).stays == {}
        assert "e4" not in stored_ids(store)


def test_a_vacuum_leaves_alone_what_a_publisher_has_written_and_not_published_yet(tmp_path, monkeypatch):
    store = tmp_path / "s"
    make_history(store)
    erase(store)
    written, go_on = threading.Event(), threading.Event()
    original = publish.publish_manifest

    def slowly(*arguments):  # noqa: ANN002
        written.set()
        assert go_on.wait(60)
        return original(*arguments)

    monkeypatch.setattr(publish, "publish_manifest", slowly)
    monkeypatch.setattr("memory_audit.snapshot.layout.VACUUM_WAITS_S", 0.1)
    publisher = threading.Thread(
        target=append_entries, args=(store, [entry("acme", "new")], keyring()), kwargs={"now_ms": NOW + 3}
    )
    publisher.start()
    try:
        assert written.wait(60)
        before = files(store)
        with pytest.raises(IncompleteError, match=r"another command is at work in .*: start again when it is done"):
            erase(store)
        assert files(store) == before
    finally:
        go_on.set()
        publisher.join()
    assert verify_store(store, keyring().policy, now_ms=LATER, deep=True).version == 5
    assert ids(open_store(store, now_ms=LATER), "acme")[-1] == "new"
    erase(store)
    assert verify_store(store, keyring().policy, now_ms=LATER, deep=True).leftovers == ()


def test_publishers_do_not_wait_for_each_other(tmp_path):
    make_history(tmp_path)
    with hold(tmp_path):
        append_entries(tmp_path, [entry("acme", "new")], keyring(), now_ms=NOW + 3)
    assert open_store(tmp_path).version == 4


def test_a_publisher_beside_a_vacuum_waits_and_no_longer_than_is_said(tmp_path, monkeypatch):
    make_history(tmp_path)
    before = files(tmp_path)
    monkeypatch.setattr("memory_audit.snapshot.layout.PUBLISHER_WAITS_S", 0.1)
    with hold(tmp_path, alone=True), pytest.raises(IncompleteError, match="another command is at work"):
        append_entries(tmp_path, [entry("acme", "new")], keyring(), now_ms=NOW + 3)
    assert files(tmp_path) == before
    append_entries(tmp_path, [entry("acme", "new")], keyring(), now_ms=NOW + 3)


def test_what_cannot_be_erased_is_told_and_erased_by_the_next_vacuum(tmp_path, monkeypatch):
    store = tmp_path / "s"
    make_history(store)
    stubborn = {path for path in store.glob("data/*/*.parquet") if "e9" in pq.read_table(path)["entry_id"].to_pylist()}
    unlink = os.unlink

    def refuse(path):
        if path in stubborn:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        result = erase(store)
    (left,) = stubborn
    assert set(result.stays) == {str(left.relative_to(store))}
    assert "operation not permitted" in result.stays[str(left.relative_to(store))]
    assert not set(result.stays) & set(result.files)
    assert (result.version, left.exists()) == (4, True)
    result = erase(store, LATER + 1)
    assert (result.version, result.versions, result.stays) == (None, (1, 2), {})
    assert "e9" not in stored_ids(store)
    assert files(store) & {"manifests/1.json", "manifests/2.json"} == set()


def test_a_version_given_up_whose_manifest_was_damaged_since_is_erased_all_the_same(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    text = next(path for path in store.glob("data/*/*.parquet") if "e9" in pq.read_table(path)["entry_id"].to_pylist())
    manifest, data = (store / "manifests" / "2.json").read_bytes(), text.read_bytes()
    erase(store)
    (store / "manifests" / "2.json").write_bytes(manifest[:-9])
    text.write_bytes(data)
    just_written(store)
    result = erase(store, LATER + 1)
    assert set(result.files) == {"manifests/2.json", str(text.relative_to(store))}


def test_what_lies_behind_a_link_and_no_version_names_stays_and_is_told(tmp_path):
    store, elsewhere = tmp_path / "s", tmp_path / "large disk"
    make_history(store)
    (store / "data").rename(elsewhere)
    (store / "data").symlink_to(elsewhere)
    name = f"b=00/{'5a' * 32}.parquet"
    (elsewhere / name).parent.mkdir(exist_ok=True)
    (elsewhere / name).write_bytes(b"of somebody else")
    for again in range(2):
        result = erase(store, LATER + again)
        assert list(result.stays) == [f"data/{name}"]
        assert "behind a link" in result.stays[f"data/{name}"]
    assert (elsewhere / name).read_bytes() == b"of somebody else"


def test_there_is_nothing_to_hold_where_no_store_is(tmp_path):
    with pytest.raises(UsageError, match="no store at"), hold(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
