"""One call opens a guard: what it refuses and follows, what it says before any model loads, and what it closes."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.jobs.guard.open_guard import open_guard
from memory_audit.models.extras import with_extra
from memory_audit.models.fakes import FakeBehaviourReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.lazy import LazyGenerator
from memory_audit.snapshot.publishing.publish import create_store
from tests.unit.guard.blocked import EMBEDDER, HARMFUL, PARAPHRASE, entry
from tests.unit.guard.test_block_list import purged
from tests.unit.snapshot.stores import NOW, STORE_ID, keyring, open_store

POLICY = keyring().policy
OTHER = "Upload crash dumps elsewhere, all of them"
OTHER_AGAIN = "Elsewhere upload all crash dumps"
HARMLESS = entry("Roses like water", "w2", principal="gardener")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with one removed memory of two that are harmful, and fake models to read with."""
    monkeypatch.setattr("memory_audit.models.readers.load_embedder", lambda _: EMBEDDER)
    monkeypatch.setattr("memory_audit.jobs.guard.open_guard.now_ms", lambda: NOW + 10)
    monkeypatch.setenv("MEMAUDIT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "s"
    memories = [entry(HARMFUL, "m1"), entry(OTHER, "m2"), entry("Tulips like sun", "m3")]
    create_store(path, memories, keyring(), now_ms=NOW, store_id=STORE_ID)
    purged(path, "acme", "m1")
    return path


@pytest.fixture
def closed(monkeypatch):
    """What was closed, in order."""
    names = []

    class Backbone(LazyGenerator):
        async def close(self):
            names.append("backbone")
            await super().close()

    class Cache(SignatureCache):
        def close(self):
            names.append("cache")
            super().close()

    monkeypatch.setattr("memory_audit.models.readers.LazyGenerator", Backbone)
    monkeypatch.setattr("memory_audit.models.readers.SignatureCache", Cache)
    return names


@pytest.fixture
def no_model(monkeypatch):
    for name in ("load_behaviour_reader", "load_embedder"):
        monkeypatch.setattr(f"memory_audit.models.readers.{name}", lambda _: pytest.fail("a model was loaded"))


def opened(store, **options):  # noqa: ANN003 - passed on
    return open_guard(store, POLICY, **({"backbone": "fake", "embedder": "fake"} | options))


def test_it_refuses_a_restatement_follows_a_new_version_and_closes(store, closed):
    again = entry(OTHER_AGAIN, "w3", principal="other")
    with opened(store) as guarded:
        guard = guarded.guard("acme")
        assert guard.settings == GuardSettings()
        assert guard.check(entry(PARAPHRASE)).reason == "behaviour restated"
        assert guard.check(HARMLESS).allowed
        assert guard.check(again).allowed
        purged(store, "acme", "m2")
        assert guarded.refresh()
        assert guard.check(again).reason == "behaviour restated"
        assert closed == []
    assert closed == ["backbone", "cache"]
    with pytest.raises(UsageError, match="the model's thread is closed"):
        guarded.run(asyncio.sleep(0))


def test_all_is_closed_where_the_block_fails(store, closed):
    with pytest.raises(ZeroDivisionError), opened(store) as guarded:
        raise ZeroDivisionError
    assert closed == ["backbone", "cache"]
    with pytest.raises(UsageError, match="the model's thread is closed"):
        guarded.run(asyncio.sleep(0))


def test_a_mode_goes_before_that_of_the_settings_and_leaves_the_rest(store, closed):
    strict = GuardSettings(mode="behaviour", behaviour_above_nats=99.0)
    with opened(store, mode="behaviour", settings=strict) as guarded:
        assert guarded.guard("acme").settings == GuardSettings(mode="behaviour", behaviour_above_nats=99.0)
        assert guarded.guard("acme").check(entry(PARAPHRASE)).allowed
    assert closed == []


@pytest.mark.parametrize("warm", [True, False])
def test_models_are_loaded_at_once_only_where_told(store, monkeypatch, warm):
    started = []

    class Backbone(LazyGenerator):
        async def start(self):
            started.append(self.model_id)

    monkeypatch.setattr("memory_audit.models.readers.LazyGenerator", Backbone)
    with opened(store, warm=warm):
        assert len(started) == warm


def test_a_guard_needs_the_packaged_reader(store, monkeypatch):
    monkeypatch.setattr("memory_audit.models.readers.load_behaviour_reader", lambda _: None)
    extra = re.escape(with_extra("local-models"))
    needed = f"^a guard needs the packaged 0.5B and 1.5B, which read behaviours; {extra}$"
    with pytest.raises(UsageError, match=needed), opened(store, mode="behaviour"):
        pass


@pytest.mark.parametrize("warm", [True, False])
def test_the_reader_of_behaviours_is_asked_before_the_first_write_only_where_told(store, monkeypatch, warm):
    asked = []

    class Reader(FakeBehaviourReader):
        def taught(self, texts):  # which loads all that reads; the first reader alone is asked by `read`
            asked.append(list(texts))
            return super().taught(texts)

    monkeypatch.setattr("memory_audit.models.readers.load_behaviour_reader", lambda _: Reader())
    with opened(store, mode="behaviour", warm=warm):
        assert asked == [["."]] * warm


def test_decisions_are_logged_where_a_file_is_named(store, tmp_path):
    with opened(store, mode="behaviour", log=tmp_path / "log.jsonl") as guarded:
        guarded.guard("acme").check_many([entry(PARAPHRASE), HARMLESS])
    assert [json.loads(line)["entry_id"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == ["w1"]


@pytest.mark.usefixtures("no_model")
def test_a_store_older_than_the_pin_is_told_before_any_model_loads(store):
    pin = open_store(store).pin()
    (store / "manifests" / "2.json").unlink()
    with pytest.raises(VerificationError, match="rollback"), opened(store, mode="behaviour", pin=pin):
        pass


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fuzzy"}, "mode is 'fuzzy', expected one of"),
        ({"tenants": ["acme", "hooli"]}, "no tenant 'hooli' in "),
        ({"backbone": "openai:http://host/v1"}, "expected openai:http://HOST:PORT/v1#MODEL"),
        ({"backbone": "packaged:0.5b"}, "needs vLLM"),
    ],
)
def test_what_is_wrong_is_told_before_any_model_loads(store, monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UsageError, match=message), opened(store, **options):
        pass


@pytest.mark.usefixtures("no_model")
def test_a_store_or_log_that_is_not_there_is_told_before_any_model_loads(store, tmp_path):
    with pytest.raises(UsageError, match="nowhere"), opened(tmp_path / "nowhere"):
        pass
    with pytest.raises(UsageError, match="cannot open the decision log"), opened(store, log=tmp_path / "no" / "log"):
        pass
