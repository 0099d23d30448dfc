"""Who is told of a night: by a real server on loopback, and a mail file; and what happens when nobody listens."""

from __future__ import annotations

import email
import email.policy
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from memory_audit.errors import UsageError
from memory_audit.jobs.nightly.run_night import NEEDS_A_PERSON
from tests.unit.jobs.nightly.conftest import write_job
from tests.unit.jobs.test_cli import event, memories, write_lines

MAIL = "notify: {mail: {folder: outbox, to: security@acme.example, sender: memaudit@acme.example}}\n"


@contextmanager
def hook(*statuses):  # noqa: ANN002
    """A webhook that answers so, one after the other; yields its address and what it was sent."""
    sent, left = [], list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append((self.path, self.headers["Idempotency-Key"], body))
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_arguments):  # noqa: ANN002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook?key=s3cret", sent
        finally:
            server.shutdown()
            thread.join()


def with_webhook(desk, address):
    write_job(desk, f"notify: {{webhook: {json.dumps(address)}, timeout_s: 5}}\n")


def test_a_webhook_gets_counts_ids_and_verdicts_and_no_text(desk, night):
    with hook(200) as (address, sent):
        with_webhook(desk, address)
        code, told, _ = night()
    ((path, key, body),) = sent
    assert path == "/hook?key=s3cret"
    message = json.loads(body)
    assert {**message, "untold": []} == told
    assert key == f"{told['store']}-1"
    assert (message["exit_code"], message["verdicts"], code) == (NEEDS_A_PERSON, {"cleared": 1}, NEEDS_A_PERSON)
    for text in ("POISON", "calm answer", "printer trouble"):
        assert text not in body.decode()


def test_a_failed_night_is_told_without_the_line_that_may_quote_a_text(desk, night):
    write_lines(desk / "dump.jsonl", [{**memories()[0], "response": "POISON", "created_at_ms": "POISON"}])
    with hook(204) as (address, sent):
        with_webhook(desk, address)
        code, _, err = night()
    assert (code, "POISON" in err) == (UsageError.exit_code, True)
    assert json.loads(sent[0][2])["failed"] == {"step": "import", "error": "EntryError"}
    assert b"POISON" not in sent[0][2]


@pytest.mark.parametrize(
    ("statuses", "asked", "line"),
    [
        ((503, 200), 2, None),
        ((503,), 2, "it answered 503"),
        ((403,), 1, "it answered 403"),
        ((302,), 1, "it answered 302"),
    ],
)
def test_a_webhook_is_asked_again_once_where_that_may_help(desk, night, statuses, asked, line):
    (desk / "events.jsonl").write_bytes(b"")
    with hook(*statuses) as (address, sent):
        with_webhook(desk, address)
        code, told, err = night()
    assert (code, len(sent)) == (0, asked)
    assert told["untold"] == ([] if line is None else [f"the webhook was not told: {line}"])
    assert (line or "") in err
    assert "s3cret" not in err + json.dumps(told)


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("http://127.0.0.1:1/", "ConnectError"),
        ("env:MEMAUDIT_TEST_HOOK", "the variable MEMAUDIT_TEST_HOOK is not set"),
    ],
)
def test_a_night_is_done_although_nobody_listens(desk, night, address, line):
    (desk / "events.jsonl").write_bytes(b"")
    with_webhook(desk, address)
    code, told, err = night()
    assert (code, told["untold"]) == (0, [f"the webhook was not told: {line}"])
    assert line in err
    assert night()[1]["night"] == 2


def test_the_address_may_be_in_a_variable(desk, night, monkeypatch):
    (desk / "events.jsonl").write_bytes(b"")
    with hook(200) as (address, sent):
        monkeypatch.setenv("MEMAUDIT_TEST_HOOK", address)
        with_webhook(desk, "env:MEMAUDIT_TEST_HOOK")
        assert night()[0] == 0
    assert len(sent) == 1


def test_a_mail_says_what_waits_and_how_to_go_on(desk, night):
    write_lines(desk / "events.jsonl", [event("e\x1b[2J\u202e1")])
    write_job(desk, MAIL)
    code, told, _ = night()
    raw = (desk / "outbox/night-000001.eml").read_bytes()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert (mail["To"], mail["Subject"]) == ("security@acme.example", "memaudit night 1: needs a person")
    text = mail.get_content()
    assert told["next"] in text
    assert "POISON" not in text
    assert not any(hidden in text for hidden in ("\x1b", "\u202e"))
    assert code == NEEDS_A_PERSON


def test_a_mail_that_cannot_be_written_ends_no_night(desk, night):
    (desk / "events.jsonl").write_bytes(b"")
    (desk / "outbox").write_bytes(b"")
    write_job(desk, MAIL)
    code, told, err = night()
    assert code == 0
    assert told["untold"] == ["no mail was written: outbox is not a folder"]
    assert "no mail was written" in err


def test_metrics_are_counts_that_prometheus_reads(desk, night):
    write_job(desk, "notify: {metrics: metrics/memaudit.prom}\n")
    night()
    text = (desk / "metrics/memaudit.prom").read_text()
    values = {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
    assert values["memaudit_night_exit_code"] == NEEDS_A_PERSON
    assert (values["memaudit_night_imported_memories"], values["memaudit_night_events"]) == (12, 1)
    assert f'memaudit_night_verdicts{{store="{desk}/store",verdict="cleared"}} 1.0' in text
    for word in ("POISON", "acme", "m3"):
        assert word not in text
    write_lines(desk / "dump.jsonl", [{}])
    assert night()[0] == UsageError.exit_code
    assert f'memaudit_night_exit_code{{store="{desk}/store"}} 2.0' in (desk / "metrics/memaudit.prom").read_text()
