"""The demo end to end with the fakes: the real store, flow, purification and attestation on a marked corpus."""

from __future__ import annotations

import io
import shutil
import time

import pytest
from rich.console import Console

from memory_audit.entry import Entry
from memory_audit.errors import UsageError
from memory_audit.guard.blocks.tombstone import read_hazard
from memory_audit.jobs.demo import run_demo
from memory_audit.jobs.demo_corpus import CONFIG_FILE
from memory_audit.provenance.keys import load_keyring, load_policy
from memory_audit.report.json import from_json
from memory_audit.report.summary import summarise
from memory_audit.snapshot.attest import verify_attestation
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.reader import open_snapshot
from tests.demo_world import CONFIG, PLANTED, write_corpus


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def start(folder, corpus, **options):  # noqa: ANN003
    text = io.StringIO()
    console = Console(file=text, width=120)
    report = run_demo(folder, console, **{"backbone": "fake", "executor": "local", "corpus": corpus} | options)
    return report, text.getvalue()


def result_of(report):
    return from_json((report.parent / "result.json").read_bytes())


def newest(folder):
    return open_snapshot(folder / "store", load_policy(folder / "keys" / "policy.json"), now_ms=2_000_000_000_000)


def test_it_clears_both_tenants_and_leaves_a_purified_attested_store(tmp_path, corpus):
    folder = tmp_path / "demo"
    report, printed = start(folder, corpus)
    assert report == folder / "run" / "report.html"
    assert report.read_text().startswith("<!doctype html>")
    result = result_of(report)
    for tenant in result.tenants:
        counts = summarise([tenant])
        assert counts.harmful_before == 1
        assert counts.harmful_after == 0
        assert counts.probes_kept == counts.probes == 1
        assert set(tenant.removal.removed) == PLANTED[tenant.tenant]
    snapshot = newest(folder)
    assert snapshot.version == 2
    assert {item.entry_id for item in snapshot.tombstones("globex")} == PLANTED["globex"]
    assert all(read_hazard(item) is not None for item in snapshot.tombstones("globex"))
    data = (report.parent / "attestation.dsse.json").read_bytes()
    assert len(verify_attestation(data, snapshot.trust, "attestation", snapshot=snapshot).removed) == 4
    assert str(report) in printed
    assert "harm in 1 of 1 replays before, in 0 after" in printed
    assert "what was audited (9 leaves) is the start of what is published (12 leaves; consistency proof" in printed
    assert "\x1b" not in printed


def test_a_second_start_shows_the_finished_demo_and_changes_nothing(tmp_path, corpus):
    folder = tmp_path / "demo"
    report, _ = start(folder, corpus)
    before = result_of(report)
    digest = newest(folder).digest
    _, printed = start(folder, corpus)
    assert "resuming" in printed
    assert "done by an earlier start: version 2" in printed
    assert result_of(report) == before
    assert newest(folder).digest == digest


@pytest.mark.parametrize(
    "stage",
    [
        "demo.create_store",
        "run.run_audit.audit_all",
        "run.run_audit.write_block_records",
        "demo.purify",
        "demo.attest_run",
    ],
)
def test_an_interrupted_demo_continues(tmp_path, corpus, monkeypatch, stage):
    folder = tmp_path / "demo"

    def interrupt(*_, **__):  # noqa: ANN002, ANN003
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"memory_audit.jobs.{stage}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            start(folder, corpus)
    start(folder, corpus)
    assert newest(folder).version == 2


def test_keys_cut_off_while_they_were_made_are_made_again(tmp_path, corpus):
    folder = tmp_path / "demo"
    start(folder, corpus)
    shutil.rmtree(folder / "store")
    (folder / "keys" / "policy.json").unlink()
    start(folder, corpus)
    assert newest(folder).version == 2


def test_a_folder_with_other_things_in_it_is_refused(tmp_path, corpus):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no demo; choose another folder") as caught:
        start(folder, corpus)
    assert "\n" not in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, corpus):
    (tmp_path / "demo").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        start(tmp_path / "demo", corpus)
    assert (tmp_path / "demo").read_text() == "mine"


def test_a_demo_of_another_corpus_is_refused(tmp_path, corpus):
    folder = tmp_path / "demo"
    start(folder, corpus)
    (corpus / CONFIG_FILE).write_text(CONFIG.replace("k: 3", "k: 4"))
    with pytest.raises(UsageError, match="another backbone or corpus"):
        start(folder, corpus)


def test_a_store_changed_after_the_demo_is_refused(tmp_path, corpus):
    folder = tmp_path / "demo"
    start(folder, corpus)
    more = Entry(
        tenant="acme", entry_id="new", principal="user", source="user", request="?", response="!", created_at_ms=1
    )
    append_entries(folder / "store", [more], load_keyring(folder / "keys"), now_ms=time.time_ns() // 1_000_000)
    with pytest.raises(UsageError, match="was changed after the demo; choose another folder"):
        start(folder, corpus)
    assert newest(folder).version == 3
