"""A lock on a folder: who waits for whom, and for whom it is known to hold."""

import os

import pytest

from memory_audit.errors import IncompleteError
from memory_audit.provenance.folder_lock import is_of_this_machine, locked

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 27 0:44 / /mnt/nfs rw,relatime - nfs4 server:/export rw,vers=4.2
32 31 0:45 / /mnt/nfs/local rw - tmpfs tmpfs rw
33 27 0:46 / /mnt/two\040words rw - fuse.sshfs host:/ rw
34 27 0:47 / /mnt/hidden rw - ext4 /dev/vdb rw
35 27 0:48 / /mnt/hidden rw - cifs //server/share rw
""".strip()


@pytest.mark.parametrize(
    ("folder", "alone"),
    [
        ("/", True),
        ("/srv/store/manifests", True),
        ("/mnt/nfs", False),
        ("/mnt/nfs/store", False),
        ("/mnt/nfs-not", True),
        ("/mnt/nfs/local/store", True),
        ("/mnt/two words/store", False),
        ("/mnt/hidden/store", False),
        ("/proc", False),
    ],
)
def test_a_file_system_is_known_by_the_mount_that_is_seen(tmp_path, monkeypatch, folder, alone):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr("memory_audit.provenance.folder_lock._MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(os.path, "realpath", str)
    assert is_of_this_machine(folder) == alone


def test_a_link_to_a_file_system_of_other_machines_is_followed(tmp_path, monkeypatch):
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/share rw - nfs4 x rw\n")
    monkeypatch.setattr("memory_audit.provenance.folder_lock._MOUNTS", tmp_path / "mountinfo")
    (tmp_path / "share").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "share")
    assert is_of_this_machine(tmp_path)
    assert not is_of_this_machine(tmp_path / "store")


def test_where_no_mounts_can_be_read_nothing_is_promised(tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.provenance.folder_lock._MOUNTS", tmp_path / "none")
    assert not is_of_this_machine(tmp_path)


def test_who_wants_a_folder_alone_waits_for_all_others_and_they_for_nobody_else(tmp_path):
    def refused(**options):  # noqa: ANN003
        with pytest.raises(IncompleteError, match="another command is at work"), locked(tmp_path, **options):
            pass

    with locked(tmp_path, shared=True), locked(tmp_path, shared=True):
        refused(wait_s=0)
    with locked(tmp_path, wait_s=0) as only:
        assert only
        refused(shared=True, wait_s=0.1)


def test_a_folder_that_cannot_be_locked_promises_nothing_and_stops_nobody(tmp_path, monkeypatch):
    def refuse(*_arguments):  # noqa: ANN002
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("memory_audit.provenance.folder_lock.fcntl.flock", refuse)
    with locked(tmp_path, wait_s=0) as only:
        assert not only


def test_what_goes_wrong_under_a_lock_is_not_taken_for_a_lock_that_failed(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path):
        (tmp_path / "none").read_bytes()
