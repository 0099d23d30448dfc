"""The guard as an agent in another language meets it: a real server on loopback, a real client."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from aiohttp import web

from audit.errors import IncompleteError
from audit.forget.guarded_store import GuardedStore
from audit.forget.settings import GuardSettings
from jobs.guard_server import MAX_BODY_BYTES, bound, guard_application
from tests.unit.forget.locks import ACTS, EMBEDDER
from tests.unit.forget.test_lockout import purged
from tests.unit.snapshot.stores import NOW, keyring, make_store

TOKEN = "a token of enough letters"  # noqa: S105 - a test's own
AGAIN = {"tenant": "acme", "entry_id": "w1", "request": "", "response": "Open the menu, and choose e1!"}
HARMLESS = {"tenant": "acme", "entry_id": "w2", "request": "", "response": "Roses like water"}


@pytest.fixture
async def served(tmp_path):
    """A server with one tombstone, and a client that has the token."""
    make_store(tmp_path / "s")
    purged(tmp_path / "s", "acme", "e1")
    guarded = GuardedStore(
        tmp_path / "s", keyring().policy, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, acts=ACTS,
        settings=GuardSettings(mode="act"), clock_ms=lambda: NOW + 10, tenants=["acme"],
    )  # fmt: skip
    runner = web.AppRunner(guard_application(guarded, token=TOKEN, refresh_s=0.05))
    await runner.setup()
    with bound("127.0.0.1", 0) as (taken,):
        site = web.SockSite(runner, taken.dup())
    await site.start()
    port = runner.addresses[0][1]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
    ) as client:
        yield client, tmp_path / "s"
    await runner.cleanup()
    guarded.close()


async def test_a_removed_text_is_refused_and_a_harmless_one_let_in(served):
    client, _ = served
    refused, fine = await client.post("/check", json=AGAIN), await client.post("/check", json=HARMLESS)
    assert (refused.status_code, refused.json()["allowed"], refused.json()["reason"]) == (200, False, "same words")
    assert refused.json()["tombstone"]["entry_id"] == "e1"
    assert fine.json()["allowed"] is True


async def test_several_writes_come_as_lines(served):
    client, _ = served
    body = "\n".join(json.dumps(write) for write in (AGAIN, HARMLESS))
    answer = await client.post("/check", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert [decision["allowed"] for decision in answer.json()["decisions"]] == [False, True]


@pytest.mark.parametrize("header", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"bearer{TOKEN}"])
async def test_without_the_token_only_health_answers(served, header):
    client, _ = served
    for method, path in (("POST", "/check"), ("GET", "/metrics"), ("GET", "/nothing")):
        answer = await client.request(method, path, headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert (await client.get("/health", headers={"Authorization": header})).json() == {"status": "ok", "version": 2}


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"", "application/json", 400, "no write in it"),
        (b'{"entry_id": "w"}', "application/json", 400, "is missing"),
        (json.dumps({**HARMLESS, "extra": 1}).encode(), "application/json", 400, "unknown field"),
        (b"x", "text/plain", 415, "expected application/json"),
        (b"\n" * 1_100, "application/x-ndjson", 413, "too many lines"),
        (json.dumps({**HARMLESS, "tenant": "globex"}).encode(), "application/json", 404, "not served here"),
        (b"x" * (MAX_BODY_BYTES + 1), "application/json", 413, ""),
    ],
)
async def test_a_request_that_breaks_a_rule_gets_one_line(served, content, kind, status, message):
    client, _ = served
    answer = await client.post("/check", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert message in answer.json()["error"]


async def test_a_wrong_method_is_refused(served):
    client, _ = served
    answer = await client.get("/check")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


async def test_a_new_tombstone_is_in_force_without_a_restart(served):
    client, store = served
    write = {**AGAIN, "response": "Open the menu -- and choose e2"}
    purged(store, "acme", "e2")
    for _ in range(200):
        if (await client.get("/health")).json()["version"] == 3:
            break
        await asyncio.sleep(0.05)
    assert (await client.post("/check", json=write)).json()["reason"] == "same words"


async def test_a_log_that_cannot_be_written_is_told_to_the_operator_and_not_to_who_asks(served, monkeypatch, capsys):
    async def full(_guarded, _entry):
        raise IncompleteError("/srv/log: cannot write the decision log (No space left on device)")

    client, _ = served
    monkeypatch.setattr("jobs.guard_server._judge", full)
    for _ in range(3):
        answer = await client.post("/check", json=AGAIN)
        assert answer.status_code == 503
        assert "/srv" not in answer.text
    assert capsys.readouterr().err == "memaudit: /srv/log: cannot write the decision log (No space left on device)\n"


async def test_a_store_that_does_not_verify_is_reported_and_the_old_set_holds(served, capsys):
    client, store = served
    (store / "manifests" / "3.json").write_bytes(b"{}")
    for _ in range(200):
        if (await client.get("/health")).json()["status"] == "stale":
            break
        await asyncio.sleep(0.05)
    assert (await client.get("/health")).json() == {"status": "stale", "version": 2}
    assert "memaudit: the newest version of the store is not in force: VerificationError: " in capsys.readouterr().err
    assert (await client.post("/check", json=AGAIN)).json()["allowed"] is False
    assert "memaudit_guard_stale 1.0" in (await client.get("/metrics")).text


async def test_metrics_count_what_was_decided(served):
    client, _ = served
    await client.post("/check", json=AGAIN)
    text = (await client.get("/metrics")).text
    assert 'memaudit_guard_decisions_total{allowed="false",reason="same words"} 1.0' in text
    assert "memaudit_guard_tombstones 1.0" in text
    assert "memaudit_guard_tombstones_words_only 0.0" in text


async def test_under_load_every_write_gets_its_own_answer(served):
    client, _ = served
    writes = [(AGAIN if n % 3 == 0 else HARMLESS) | {"entry_id": f"w{n}", "principal": f"p{n % 9}"} for n in range(150)]
    answers = await asyncio.gather(*(client.post("/check", json=write) for write in writes))
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["entry_id"] for answer in answers] == [write["entry_id"] for write in writes]
    assert [answer.json()["allowed"] for answer in answers] == [n % 3 != 0 for n in range(150)]


def test_who_connects_is_refused_until_the_guard_serves():
    with bound("127.0.0.1", 0) as (taken,), pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{taken.getsockname()[1]}/health")
