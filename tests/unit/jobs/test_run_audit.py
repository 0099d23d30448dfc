"""What a run is of: the user's own code is part of it, and a run without any is named as ever."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

import memory_audit.guard
from memory_audit.errors import EventError, UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.jobs.run.run_files import read_identity
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.models.fakes import FakeGenerator
from memory_audit.request import read_events
from tests.audit_world import CONFIG, FAKES, NOW_MS, group_of, harmful_events, make_snapshot, removed, request_of

EVENTS = harmful_events()[:1]
DIGEST = "e" * 64
PACKAGED = Path(memory_audit.guard.__file__).parent / "blocks" / "taxonomy.yaml"
SCORER = "def score(query, output):\n    return {}\n"
AGENT = """
from memory_audit.attribution.replays.agents import FewShotAgent

class Desk(FewShotAgent):
    motto = {!r}
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    return make_snapshot(tmp_path_factory.mktemp("store") / "memory")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder that modules are imported from."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def audit(snapshot, out, config=CONFIG, *, now_ms=NOW_MS):
    generator = FakeGenerator()
    with closing(LocalExecutor(FAKES, generator)) as executor:
        result, _ = audit_all(request_of(snapshot, EVENTS, config, digest=DIGEST), executor, out, now_ms=now_ms)
    return result, generator.requests


def test_events_of_any_size_are_not_read_whole_from_a_pipe_either(tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.request.MAX_EVENTS_BYTES", 64)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 65,), daemon=True)
    writer.start()
    with pytest.raises(EventError, match="more than 64 bytes; split it by tenant"):
        read_events(pipe)
    writer.join(timeout=30)


def test_a_run_with_a_scorer_that_was_corrected_since_is_refused_and_names_it(snapshot, tmp_path, modules):
    scorer = modules / "scorer_to_correct.py"
    scorer.write_text(SCORER.format("0.0"))
    config = dataclasses.replace(CONFIG, harm={"kind": "scorer_to_correct:score"})
    result, _ = audit(snapshot, tmp_path / "run", config)
    assert removed(result) == {"acme": set()}
    assert audit(snapshot, tmp_path / "run", config)[1] == 0  # the same code: nothing is asked again

    scorer.write_text(SCORER.format("float('HARM' in output)"))
    with pytest.raises(UsageError, match=r"run: holds a run with other harm code; choose another --out$"):
        audit(snapshot, tmp_path / "run", config)


def test_a_run_with_an_agent_that_was_changed_since_is_refused_and_names_it(snapshot, tmp_path, modules):
    agent = modules / "agent_to_change.py"
    agent.write_text(AGENT.format("Haste"))
    config = dataclasses.replace(CONFIG, agent={"kind": "agent_to_change:Desk", "system": "Answer briefly."})
    first, _ = audit(snapshot, tmp_path / "run", config)
    agent.write_text(AGENT.format("Care"))
    with pytest.raises(UsageError, match=r"holds a run with other agent code; "):
        audit(snapshot, tmp_path / "run", config)
    assert audit(snapshot, tmp_path / "other", config)[0].run_id != first.run_id


def test_a_run_with_a_taxonomy_that_was_edited_since_is_refused_and_names_it(snapshot, tmp_path):
    taxonomy = tmp_path / "taxonomy.yaml"
    taxonomy.write_bytes(PACKAGED.read_bytes())
    config = dataclasses.replace(CONFIG, taxonomy=str(taxonomy))
    audit(snapshot, tmp_path / "run", config)
    assert audit(snapshot, tmp_path / "run", config)[1] == 0
    unread = dataclasses.replace(config, hazards="off")
    audit(snapshot, tmp_path / "off", unread)

    taxonomy.write_bytes(PACKAGED.read_bytes().replace(b"version: 1", b"version: 2", 1))
    with pytest.raises(UsageError, match=r"holds a run with other taxonomy; choose another --out$"):
        audit(snapshot, tmp_path / "run", config)
    assert audit(snapshot, tmp_path / "off", unread)[1] == 0


def test_a_taxonomy_that_cannot_be_read_is_the_users_to_hear_before_anything_is_asked(snapshot, tmp_path):
    config = dataclasses.replace(CONFIG, taxonomy=str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match=r"none\.yaml: cannot be read"):
        request_of(snapshot, EVENTS, config)


def test_own_code_is_known_by_the_digest_of_its_file(snapshot, modules):
    (modules / "scorer_of_mine.py").write_text(SCORER.format("1.0"))
    digest = hashlib.sha256(SCORER.format("1.0").encode()).hexdigest()
    config = dataclasses.replace(CONFIG, harm={"kind": "scorer_of_mine:score"})
    identity = request_of(snapshot, EVENTS, config).identity
    assert (identity["harm code"], "agent code" in identity) == (digest, False)


@pytest.mark.parametrize("kind", ["math:dist", "sys:getsizeof"])
def test_a_module_without_a_source_has_no_digest(snapshot, kind):
    config = dataclasses.replace(CONFIG, harm={"kind": kind})
    assert "harm code" not in request_of(snapshot, EVENTS, config).identity


def test_a_run_without_own_code_is_of_what_it_always_was(snapshot, tmp_path):
    result, _ = audit(snapshot, tmp_path / "run")
    identity = {
        "format": "memaudit run v4", "configuration": CONFIG.digest(), "snapshot": snapshot.digest,
        "events": DIGEST,
    }  # fmt: skip
    assert json.loads((tmp_path / "run" / "run.json").read_bytes()) == identity
    assert result.run_id == hashlib.sha256("".join(identity.values()).encode()).hexdigest()[:16]
    folder = group_of(tmp_path / "run")
    group = read_identity(folder)
    assert {name: group[name] for name in group.keys() - {"program"}} == identity | {"group": folder.name}
    assert RunFolder(folder, group).outcomes


def test_starting_a_finished_run_again_keeps_when_it_started_and_how_long_it_took(snapshot, tmp_path):
    first, _ = audit(snapshot, tmp_path / "run")
    written = (tmp_path / "run" / "result.json").read_bytes()
    again, requests = audit(snapshot, tmp_path / "run", now_ms=NOW_MS + 60_000)
    assert requests == 0
    assert (again.started_ms, again.seconds) == (NOW_MS, first.seconds)
    assert (tmp_path / "run" / "result.json").read_bytes() == written
    for shard in (group_of(tmp_path / "run") / "replays").iterdir():
        shard.unlink()
    assert audit(snapshot, tmp_path / "run")[1] == 0  # what is finished needs none of them
    (group_of(tmp_path / "run") / "finished.json").unlink()
    later, requests = audit(snapshot, tmp_path / "run", now_ms=NOW_MS + 60_000)
    assert requests > 0
    assert later.started_ms == NOW_MS
    assert later.seconds > first.seconds
