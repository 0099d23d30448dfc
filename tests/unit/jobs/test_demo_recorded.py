"""`memaudit demo --recorded`: the packaged corpus, the real pipeline, and answers that real models gave once."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from memory_audit.errors import ModelError, UsageError
from memory_audit.generation import GenerationRequest, Message
from memory_audit.jobs.demo import run_demo
from memory_audit.models.loading import ModelSpecs, load_embedder, load_entailment, load_generator, served_here
from memory_audit.models.recorded import RECORDED
from memory_audit.provenance.keys import load_policy
from memory_audit.report.json import from_json
from memory_audit.report.summary import summarise
from memory_audit.snapshot.reader import open_snapshot
from tests.unit.jobs.poisoned_in_the_demo import POISONED

SPECS = ModelSpecs(backbone=RECORDED, nli=RECORDED, embedder=RECORDED)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder, text = tmp_path_factory.mktemp("look") / "demo", io.StringIO()
    report = run_demo(folder, Console(file=text, width=120), recorded=True)
    return folder, report.read_text(), text.getvalue()


def test_it_clears_the_harm_and_publishes_a_purified_store(demo):
    folder, _, _ = demo
    result = from_json((folder / "run" / "result.json").read_bytes())
    total = summarise(result.tenants)
    assert (total.harmful_before, total.harmful_after) == (8, 0)
    for tenant in result.tenants:
        assert set(tenant.removal.removed) <= POISONED[tenant.tenant]
    assert total.probes_kept == total.probes == 6
    newest = open_snapshot(folder / "store", load_policy(folder / "keys" / "policy.json"), now_ms=2_000_000_000_000)
    assert newest.version == 2


def test_screen_report_and_result_say_that_answers_are_recorded(demo):
    folder, page, printed = demo
    models = from_json((folder / "run" / "result.json").read_bytes()).models
    assert models
    assert all(name.startswith("recorded:") for name in models.values())
    assert "RECORDED: the models' answers come from a file" in printed
    assert "no model ran here" in printed
    assert "No model ran here." in page


def test_a_question_that_was_not_recorded_is_an_error_and_no_answer():
    request = GenerationRequest(messages=(Message(role="user", content="Something else?"),), max_tokens=1)
    with pytest.raises(ModelError, match="no recorded answer"):
        asyncio.run(load_generator(SPECS).generate(request))
    with pytest.raises(ModelError, match="no recorded answer"):
        load_entailment(SPECS).probabilities([("a", "b")])
    with pytest.raises(ModelError, match="no recorded answer"):
        load_embedder(SPECS).embed(["something else"])


def test_a_named_backbone_is_not_answered_from_the_recording(tmp_path):
    with pytest.raises(UsageError, match="--recorded takes recorded answers"):
        run_demo(tmp_path / "demo", Console(file=io.StringIO()), backbone="fake", recorded=True)


def test_no_weights_are_needed():
    assert not served_here(RECORDED)
