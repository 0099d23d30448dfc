"""The whole way in a bucket: nights that import, audit and purge, and a guard that follows them."""

from __future__ import annotations

import json
import shlex

from memory_audit.jobs.guard.open_guard import open_guard
from memory_audit.jobs.nightly.run_night import NEEDS_A_PERSON
from tests.unit.jobs.nightly.conftest import NIGHTLY
from tests.unit.jobs.test_cli import CONFIG, event, memories, write_lines


def test_nights_import_audit_and_purge_in_a_bucket_and_a_guard_follows(address, folder, set_up, run):
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "nightly.yaml").write_text(NIGHTLY.replace("store: store", f"store: {address}"), encoding="utf-8")
    write_lines(folder / "dump.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"))
    code, out, err = run("nightly", "nightly.yaml", "--json")
    assert code == NEEDS_A_PERSON, err
    told = json.loads(out)
    assert (told["import"]["new"], told["waits"]) == (12, ["2 memories would go, and the policy purges nothing"])
    with open_guard(address, "memaudit-keys/policy.json", backbone="fake", embedder="fake") as guarded:
        assert guarded.snapshot.version == 1
        next_words = shlex.split(told["next"])[1:]
        assert address in next_words
        assert run(*next_words)[0] == 0
        assert guarded.refresh()
        assert guarded.snapshot.version == 2
    assert run("verify", address, "--attestation", f"{told['run']}/attestation.dsse.json", "--quiet")[0] == 0
    code, out, _ = run("nightly", "nightly.yaml", "--json")
    assert (code, json.loads(out)["verdicts"]) == (0, {"not reproduced": 1})
