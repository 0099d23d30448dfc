"""A run whose settings are too long for a manifest: purged, attested, verified, and the store goes on."""

from __future__ import annotations

import hashlib
import json
import shutil

from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from tests.unit.jobs.test_cli import AUDIT, CONFIG, desk, memories, store, write_lines  # noqa: F401 - fixtures


def test_a_long_prompt_keeps_no_audit_from_being_purged(store, run, desk):  # noqa: F811 - fixtures
    template = "Answer in the manner of the notes. " * 2_000 + "{memories}"
    agent = json.dumps({"kind": "template", "template": template})
    (desk / "memaudit.yaml").write_text(f"{CONFIG}agent: {agent}\n", encoding="utf-8")
    assert run(*AUDIT)[0] == 0
    assert run("purge", "run", "store")[0] == 0
    assert run("purge", "run", "store", "--apply")[0] == 0
    attestation = f"run/{ATTESTATION_FILE}"
    code, out, _ = run("verify", "store", "--attestation", attestation, "--quiet")
    assert (code, "attestation: version 2 removed 2 memories" in out) == (0, True)
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0

    config = json.loads((desk / "run" / "result.json").read_text())["config"]
    assert len(config["agent"]) > 70_000
    stated = f"sha256:{hashlib.sha256(config['agent'].encode()).hexdigest()}"
    policy = load_policy(desk / "memaudit-keys" / "policy.json")
    assert open_snapshot(store, policy, now_ms=now_ms(), version=2).manifest.config["agent"] == stated


def test_an_attestation_ahead_of_the_store_shows_a_rollback_and_one_behind_a_vacuum(store, run, desk):  # noqa: F811 - fixtures
    assert run(*AUDIT)[0] == 0
    shutil.copytree(store, desk / "old")
    assert run("purge", "run", "store", "--apply")[0] == 0
    attestation = f"run/{ATTESTATION_FILE}"
    code, _, err = run("verify", "old", "--attestation", attestation, "--pin", "none.json")
    assert (code, "its newest version is 1, and the auditor signed that version 2 was published" in err) == (4, True)
    for number in range(2):
        write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": f"m9{number}"}])
        assert run("import", "jsonl:more.jsonl", "store")[0] == 0
        assert run("vacuum", "store", "--keep", "0d", "--apply")[0] == 0
    code, _, err = run("verify", "store", "--attestation", attestation)
    assert (code, "about version 2, which a vacuum erased from store" in err) == (2, True)
