"""The guard as an agent in another language meets it: a real server on loopback, a real client."""

# ruff: noqa: ANN002, ANN003 - what the tests pass is passed on

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import threading

import httpx
import pytest

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.guard import WriteGuard
from memory_audit.guard.guarded_store import GuardedStore
from memory_audit.jobs.guard import server as guard_server
from memory_audit.jobs.guard.bodies import parse_writes
from memory_audit.jobs.guard.server import MAX_BODY_BYTES, bound
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER
from tests.unit.guard.test_block_list import purged
from tests.unit.snapshot.stores import NOW, Killed, keyring, make_store

TOKEN = "a token of enough letters"  # noqa: S105 - a test's own
AGAIN = {"tenant": "acme", "entry_id": "w1", "request": "", "response": "Open the menu, and choose e1!"}
HARMLESS = {"tenant": "acme", "entry_id": "w2", "request": "", "response": "Roses like water"}
HEALTHY = {"status": "ok", "version": 2, "pinned": True}


class KeptPin:
    """What a server gave to be kept, and the threads that it did so in."""

    def __init__(self) -> None:
        self.versions, self.threads, self.error = [], set(), None

    def __call__(self, snapshot) -> None:
        self.threads.add(threading.current_thread())
        if self.error is not None:
            raise self.error
        self.versions.append(snapshot.version)


class FullDisk(io.StringIO):
    """Standard error in a file on a full disk."""

    def write(self, _text):
        raise OSError(28, "No space left on device")


@contextlib.asynccontextmanager
async def serving(path, keep, tenants=("acme",), token=TOKEN):
    """A server with one tombstone, and a client that has the token."""
    make_store(path)
    purged(path, "acme", "e1")
    guarded = GuardedStore(
        path, keyring().policy, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, behaviours=BEHAVIOURS,
        settings=GuardSettings(mode="behaviour"), clock_ms=lambda: NOW + 10, tenants=tenants,
    )  # fmt: skip
    with contextlib.closing(guarded), bound("127.0.0.1", 0) as sockets:
        async with (
            guard_server.serving(guarded, sockets, token=token, refresh_s=0.05, keep=keep),
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{sockets[0].getsockname()[1]}",
                headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=60,
            ) as client,
        ):  # fmt: skip
            yield client


@pytest.fixture
def pin():
    return KeptPin()


@pytest.fixture
async def served(tmp_path, pin):
    async with serving(tmp_path / "s", pin) as client:
        yield client, tmp_path / "s"


async def shown(client, **members):
    """Wait until /health says this."""
    for _ in range(200):
        health = (await client.get("/health")).json()
        if health | members == health:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"/health says {health}")


async def begin(client, part=b'{"tenant":', length=1_000):
    """Send the first part of a body, and leave the rest."""
    head = f"POST /check HTTP/1.1\r\nHost: guard\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + part)
    await writer.drain()
    return reader, writer


async def leave(*begun):
    for _, writer in begun:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in begun), return_exceptions=True)


async def counted(client, line):
    """Wait until /metrics has this line."""
    for _ in range(100):
        text = (await client.get("/metrics")).text
        if line in text.splitlines():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"no {line} in {text}")


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
    assert (await client.get("/health", headers={"Authorization": header})).json() == HEALTHY


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"", "application/json", 400, "no write in it"),
        (b'{"entry_id": "w"}', "application/json", 400, "is missing"),
        (json.dumps({**HARMLESS, "response": "\u0301\u0316" * 40_000}).encode(), "application/json", 400, "marks in"),
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
    await shown(client, version=3)
    assert (await client.post("/check", json=write)).json()["reason"] == "same words"


async def test_a_log_that_cannot_be_written_is_told_to_the_operator_and_not_to_who_asks(served, monkeypatch, capsys):
    async def full(*_):
        raise IncompleteError("/srv/log: cannot write the decision log (No space left on device)")

    client, _ = served
    monkeypatch.setattr("memory_audit.jobs.guard.server._judge", full)
    for _ in range(3):
        answer = await client.post("/check", json=AGAIN)
        assert answer.status_code == 503
        assert "/srv" not in answer.text
    assert capsys.readouterr().err == "memaudit: /srv/log: cannot write the decision log (No space left on device)\n"


async def test_causes_that_take_turns_do_not_fill_standard_error(served, monkeypatch, capsys):
    async def full(_guarded, entries, _made):
        raise IncompleteError(f"cannot be judged: {entries[0].entry_id}")

    client, _ = served
    monkeypatch.setattr(guard_server, "_judge", full)
    for number in range(30):
        assert (await client.post("/check", json={**AGAIN, "entry_id": f"w{number}"})).status_code == 503
    assert capsys.readouterr().err == "memaudit: cannot be judged: w0\n"


async def test_an_error_in_the_event_loop_is_told_in_one_line_and_once(served, capsys, caplog):
    client, _ = served
    for number in range(20):
        error = OSError(24, f"Too many open files {number}")
        asyncio.get_running_loop().call_exception_handler({"message": "out of system resource", "exception": error})
    assert (await client.get("/health")).status_code == 200
    assert capsys.readouterr().err == "memaudit: an error came to the event loop: OSError\n"
    assert not caplog.records


async def test_a_log_that_cannot_be_written_is_503_where_standard_error_takes_nothing_either(served, monkeypatch):
    async def full(*_):
        raise IncompleteError("/srv/log: cannot write the decision log (No space left on device)")

    client, _ = served
    monkeypatch.setattr("memory_audit.jobs.guard.server._judge", full)
    monkeypatch.setattr(sys, "stderr", FullDisk())
    answer = await client.post("/check", json=AGAIN)
    assert (answer.status_code, answer.json()["error"].split(" ", 1)[0]) == (503, "cannot")


async def test_new_tombstones_come_in_force_though_neither_pin_nor_standard_error_can_be_written(
    served, pin, monkeypatch
):
    client, store = served
    monkeypatch.setattr(sys, "stderr", FullDisk())
    pin.error = IncompleteError("/op/pin: cannot write (no space left)")
    for entry_id, version in (("e2", 3), ("e3", 4)):
        purged(store, "acme", entry_id)
        await shown(client, version=version, status="ok", pinned=False)


async def test_looks_at_the_store_that_end_no_more_show_in_health_and_metrics(served, monkeypatch):
    client, _ = served
    go_on = threading.Event()
    monkeypatch.setattr("memory_audit.jobs.guard.following.LOOK_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(GuardedStore, "refresh", lambda _: go_on.wait(30) and False)
        await shown(client, status="stale")
        assert "memaudit_guard_stale 1.0" in (await client.get("/metrics")).text
        go_on.set()
        await shown(client, status="ok")

    def die(_):
        raise Killed

    monkeypatch.setattr(GuardedStore, "refresh", die)
    await shown(client, status="stale")


async def test_an_error_that_nobody_foresaw_ends_no_looking(served, pin, monkeypatch, capsys):
    def broken(_):
        raise RuntimeError("of no known kind")

    client, store = served
    with monkeypatch.context() as patch:
        patch.setattr("memory_audit.jobs.guard.following.Pinned.keep", broken)
        purged(store, "acme", "e2")
        await shown(client, version=3)
        await asyncio.sleep(0.2)
    purged(store, "acme", "e3")
    await shown(client, version=4)
    assert pin.versions == [4]
    assert capsys.readouterr().err == "memaudit: the store was not looked at: RuntimeError: of no known kind\n"


async def test_a_store_that_does_not_verify_is_reported_and_the_old_set_holds(served, capsys):
    client, store = served
    (store / "manifests" / "3.json").write_bytes(b"{}")
    await shown(client, status="stale")
    assert (await client.get("/health")).json() == HEALTHY | {"status": "stale"}
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


async def test_a_decision_is_counted_though_its_request_fails_later(served, monkeypatch):
    async def check(guard, entry):
        if entry.entry_id == "w2":
            raise IncompleteError("the decision log is full")
        return guard.check(entry)

    client, _ = served
    monkeypatch.setattr(WriteGuard, "check_async", check)
    body = "\n".join(json.dumps(write) for write in (AGAIN, HARMLESS))
    answer = await client.post("/check", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 503
    text = (await client.get("/metrics")).text
    assert 'memaudit_guard_decisions_total{allowed="false",reason="same words"} 1.0' in text
    assert "memaudit_guard_check_seconds_count 1.0" in text


async def test_no_write_is_judged_beside_one_for_a_tenant_that_is_not_served(served, monkeypatch):
    async def check(_guard, entry):
        pytest.fail(f"{entry.entry_id} was judged")

    client, _ = served
    monkeypatch.setattr(WriteGuard, "check_async", check)
    body = "\n".join(json.dumps(write) for write in (AGAIN, {**HARMLESS, "tenant": "globex"}))
    answer = await client.post("/check", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 404
    assert "memaudit_guard_check_seconds_count 0.0" in (await client.get("/metrics")).text


async def test_a_guard_that_cannot_be_made_is_not_a_tenant_that_is_not_served(tmp_path, pin, monkeypatch, capsys):
    def broken(*_args, **_options):
        raise UsageError("tombstones of taxonomy ab name 70 labels, at most 64")

    async with serving(tmp_path / "s", pin, tenants=()) as client:
        monkeypatch.setattr("memory_audit.guard.guarded_store.read_block_list", broken)
        answer = await client.post("/check", json=AGAIN)
        unknown = await client.post("/check", json={**AGAIN, "tenant": "nobody"})
    assert (answer.status_code, unknown.status_code) == (503, 404)
    assert "labels" not in answer.text
    assert capsys.readouterr().err == "memaudit: tombstones of taxonomy ab name 70 labels, at most 64\n"


async def test_a_guard_that_fails_is_not_a_write_that_breaks_a_rule(served, monkeypatch):
    async def broken(_guard, _entry):
        raise UsageError("keys of 64 dimensions, vectors of 32")

    client, _ = served
    monkeypatch.setattr(WriteGuard, "check_async", broken)
    assert (await client.post("/check", json=AGAIN)).status_code == 503


async def test_why_a_model_failed_is_told_to_the_operator_and_not_to_who_asks(served, monkeypatch, capsys):
    details = iter(["IncompleteError: /srv/hazards.sqlite: no database; refused by policy (closed)", "another"])

    async def failed(_guard, _entry):
        return GuardDecision(allowed=False, reason="model failed", detail=next(details))

    client, _ = served
    monkeypatch.setattr(WriteGuard, "check_async", failed)
    for _ in range(2):  # the second within a minute
        answer = (await client.post("/check", json=HARMLESS)).json()
        assert (answer["allowed"], answer["reason"], answer["detail"]) == (False, "model failed", "")
    assert capsys.readouterr().err == (
        "memaudit: a write could not be judged: model failed: IncompleteError: /srv/hazards.sqlite: no database; "
        "refused by policy (closed)\n"
    )


async def test_an_unknown_tenant_is_told_so_while_a_newer_version_is_verified(served, monkeypatch):
    client, store = served
    go_on = threading.Event()
    real = GuardedStore._refresh

    def slowly(guarded):
        go_on.wait(30)
        return real(guarded)

    monkeypatch.setattr(GuardedStore, "_refresh", slowly)
    purged(store, "acme", "e2")
    await asyncio.sleep(0.2)
    asked = [client.post("/check", json={**HARMLESS, "tenant": f"nobody{n}"}) for n in range(40)]
    answers = await asyncio.wait_for(asyncio.gather(*asked, client.post("/check", json=HARMLESS)), 10)
    go_on.set()
    assert [answer.status_code for answer in answers] == [404] * 40 + [200]
    await shown(client, version=3)


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


async def test_each_version_that_comes_into_force_is_kept_and_the_last_one_once_more_at_the_end(tmp_path, pin):
    async with serving(tmp_path / "s", pin) as client:
        purged(tmp_path / "s", "acme", "e2")
        await shown(client, version=3)
        await asyncio.sleep(0.3)  # several looks at the store
        assert pin.versions == [3]
    assert pin.versions == [3, 3]
    assert threading.main_thread() not in pin.threads


async def test_a_pin_that_cannot_be_kept_is_told_and_tried_again_and_the_guard_goes_on(served, pin, capsys):
    client, store = served
    pin.error = IncompleteError("/op/pin: cannot write (no space left)")
    purged(store, "acme", "e2")
    await shown(client, status="ok", version=3, pinned=False)
    await asyncio.sleep(0.2)
    refused = await client.post("/check", json={**AGAIN, "response": "Open the menu -- and choose e2"})
    assert refused.json()["reason"] == "same words"
    told = "memaudit: a rollback of the store would go unseen after a restart: /op/pin: cannot write (no space left)"
    assert capsys.readouterr().err == f"{told}\n"
    pin.error = None
    await shown(client, pinned=True)
    assert pin.versions == [3]


async def test_writes_are_parsed_beside_the_event_loop(served, monkeypatch):
    client, _ = served
    threads = []

    def parse(*args, **options):
        threads.append(threading.current_thread())
        return parse_writes(*args, **options)

    monkeypatch.setattr("memory_audit.jobs.guard.server.parse_writes", parse)
    assert (await client.post("/check", json=HARMLESS)).status_code == 200
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_who_sends_slowly_stops_nobody_else(tmp_path, pin, monkeypatch):
    for name in ("MAX_WAITING", "MAX_READING"):
        monkeypatch.setattr(guard_server, name, 4)
    async with serving(tmp_path / "s", pin) as client:
        slow = [await begin(client) for _ in range(12)]
        answer = await client.post("/check", json=HARMLESS)
        assert (answer.status_code, answer.json()["allowed"]) == (200, True)
        await leave(*slow)


async def test_of_too_many_bodies_the_one_that_takes_longest_makes_room(tmp_path, pin, monkeypatch):
    monkeypatch.setattr(guard_server, "MAX_READING", 2)
    async with serving(tmp_path / "s", pin) as client:
        body = json.dumps(HARMLESS).encode()
        begun = []
        for _ in range(3):
            begun.append(await begin(client, body[:9], len(body)))
            await asyncio.sleep(0.05)
        assert (await begun[0][0].readline()).split(b" ", 2)[1] == b"503"
        for reader, writer in begun[1:]:
            writer.write(body[9:])
            assert (await reader.readline()).split()[1] == b"200"
        await leave(*begun)


async def test_a_body_has_limited_time(served, monkeypatch):
    client, _ = served
    monkeypatch.setattr("memory_audit.jobs.guard.bodies.BODY_S", 0.2)
    reader, writer = await begin(client)
    assert await asyncio.wait_for(reader.readline(), 5) == b"HTTP/1.1 408 Request Timeout\r\n"
    await leave((reader, writer))
    await counted(client, 'memaudit_guard_errors_total{status="408"} 1.0')


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip", "no coding"])
async def test_a_packed_body_is_refused_and_leaves_no_traceback(served, capsys, coding):
    client, _ = served
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    for _ in range(3):
        answer = await client.post("/check", content=b"wrong", headers=headers)
        assert (answer.status_code, answer.headers["Accept-Encoding"]) == (415, "identity")
        assert answer.json() == {"error": "expected no Content-Encoding"}
        stranger = await client.post("/check", content=b"wrong", headers={**headers, "Authorization": ""})
        assert stranger.status_code == 401
    await counted(client, 'memaudit_guard_errors_total{status="415"} 3.0')
    await counted(client, 'memaudit_guard_errors_total{status="401"} 3.0')
    assert capsys.readouterr().err == ""


async def test_a_body_that_is_said_not_to_be_packed_is_read(served):
    client, _ = served
    answer = await client.post("/check", json=AGAIN, headers={"Content-Encoding": "Identity"})
    assert answer.json()["reason"] == "same words"


async def test_what_is_no_http_is_told_in_one_line_without_a_word_of_the_client_and_counted(served, capsys, caplog):
    client, _ = served
    for number in range(20):
        begun = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        begun[1].write(f"GET /health HTTP/1.1\r\nhost: x\r\nwicked word {number}\r\n\r\n".encode())
        assert (await begun[0].readline()).split()[1] == b"400"
        await leave(begun)
    await counted(client, 'memaudit_guard_errors_total{status="400"} 20.0')
    told = capsys.readouterr().err
    assert told.startswith("memaudit: a request went wrong: ")
    assert (told.count("\n"), "wicked" in told, "Traceback" in told) == (1, False, False)
    assert not caplog.records


async def test_a_client_that_leaves_in_mid_body_is_counted_and_leaves_no_traceback(served, capsys, caplog):
    client, _ = served
    await leave(await begin(client))
    await counted(client, 'memaudit_guard_errors_total{status="400"} 1.0')
    assert not caplog.records
    assert capsys.readouterr().err == ""
