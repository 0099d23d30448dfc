"""The client against a real HTTP server on the loopback interface, scripted answer by answer."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from memory_audit.errors import AnswerError, ModelError, PrefixUnsupportedError, PromptTooLongError, UsageError
from memory_audit.generation import Completion, GenerationRequest, Message, TokenUsage
from memory_audit.models.backbone.chat_completion import read_completion
from memory_audit.models.backbone.generator_http import HttpGenerator, HttpSettings
from memory_audit.models.services.retries import take_retries

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = HttpSettings(first_wait_s=0.01, attempts=3, timeout_s=5)


class _Quiet(ThreadingHTTPServer):
    """A server that says nothing of clients that left: what this process prints is read by tests."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Server:
    """Answers with the scripted (status, headers, body) in turn, the last one for ever, and keeps what it was sent."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], object]] = []
        self.thinks_s = 0.0
        """Before each answer."""
        self.pause_s = 0.0
        """Between the bytes of an answer, where it is not 0."""
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                outer.bodies.append(json.loads(self.rfile.read(length)) | {"path": self.path})
                outer.keys.append(self.headers.get("authorization"))
                status, headers, body = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                time.sleep(outer.thinks_s)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                for number in range(len(raw) if outer.pause_s else 0):
                    self.wfile.write(raw[number : number + 1])
                    time.sleep(outer.pause_s)
                if not outer.pause_s:
                    self.wfile.write(raw)

            def log_message(self, *_args: object) -> None:
                return

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def chat(text: str = "fine", **more: object) -> dict[str, object]:
    return {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"} | more],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}},
    }


FOUR, OTHER = {"token": " four", "logprob": -0.1}, {"token": ",", "logprob": -3.0}
CONTINUED = chat(" four five", logprobs={"content": [{"top_logprobs": [FOUR, OTHER]}]})
"""What a server that goes on from a forced prefix answers to the probe."""


def ask(server: Server, settings: HttpSettings = FAST, **options: object) -> Completion:
    async def call() -> Completion:
        generator = HttpGenerator(server.url, "tiny", settings)
        try:
            messages = (Message(role="user", content="hello"),)
            return await generator.generate(
                GenerationRequest(messages=messages, **({"max_tokens": 7} | options))  # type: ignore[arg-type]
            )
        finally:
            await generator.close()
            await generator.close()

    return asyncio.run(call())


def test_a_plain_request_sends_nothing_that_other_servers_do_not_know(server: Server):
    server.script = [(200, {}, chat())]
    completion = ask(server)
    assert completion == Completion(
        text="fine", finish_reason="stop", usage=TokenUsage(prompt_tokens=9, cached_tokens=5, completion_tokens=2)
    )
    assert server.bodies == [
        {
            "path": "/v1/chat/completions", "model": "tiny", "max_tokens": 7, "temperature": 0.0,
            "messages": [{"role": "user", "content": "hello"}],
        }
    ]  # fmt: skip


def test_prefix_logprobs_seed_and_stop_reach_the_server(server: Server):
    top = [{"token": "b", "logprob": -2.0}, {"token": " a", "logprob": -0.5}]
    server.script = [(200, {}, CONTINUED), (200, {}, chat(logprobs={"content": [{"top_logprobs": top}]}))]
    completion = ask(server, prefix="Sure", top_logprobs=2, temperature=0.5, seed=3, stop=("\n",))
    assert [(item.text, item.logprob_nats) for item in completion.top[0]] == [(" a", -0.5), ("b", -2.0)]
    sent = server.bodies[1]
    assert sent["messages"][-1] == {"role": "assistant", "content": "Sure"}
    assert (sent["continue_final_message"], sent["add_generation_prompt"]) == (True, False)
    assert (sent["seed"], sent["stop"], sent["top_logprobs"]) == (3, ["\n"], 2)


def test_guides_are_sent_and_the_answer_is_held_to_them(server: Server):
    server.script = [(200, {}, chat("yes"))]
    assert ask(server, choices=("yes", "no")).text == "yes"
    assert ask(server, regex="ye?s").text == "yes"
    ask(server, json_schema='{"type": "object"}')
    assert [body.get("structured_outputs") for body in server.bodies] == [
        {"choice": ["yes", "no"]}, {"regex": "ye?s"}, None,
    ]  # fmt: skip
    assert server.bodies[2]["response_format"]["json_schema"]["schema"] == {"type": "object"}
    server.script = [(200, {}, chat("maybe"))]
    for guide in ({"choices": ("yes", "no")}, {"regex": "yes|no"}):
        with pytest.raises(ModelError, match=r"answered 'maybe'.*does not support structured_outputs"):
            ask(server, **guide)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_fault_is_tried_again(server: Server, status: int):
    server.script = [(status, {}, "busy"), (status, {}, "busy"), (200, {}, chat())]
    take_retries()
    assert ask(server).text == "fine"
    assert (len(server.bodies), take_retries(), take_retries()) == (3, {"backbone": 2}, {})


def test_a_lasting_fault_ends_after_the_attempts(server: Server):
    server.script = [(503, {}, b"overloaded\nby far")]
    with pytest.raises(ModelError, match=r"HTTP 503: overloaded by far \(3 attempts\)$"):
        ask(server)
    assert len(server.bodies) == 3


def test_retry_after_is_kept(server: Server):
    server.script = [(429, {"retry-after": "1"}, ""), (200, {}, chat())]
    started = asyncio.new_event_loop()
    before = started.time()
    ask(server)
    assert started.time() - before >= 1
    started.close()


def test_a_server_that_is_not_there_is_a_model_error():
    with pytest.raises(ModelError, match=r"ConnectError.*2 attempts"):
        asyncio.run(
            HttpGenerator("http://127.0.0.1:9/v1", "tiny", HttpSettings(attempts=2, first_wait_s=0.01)).generate(
                GenerationRequest(messages=(Message(role="user", content="x"),), max_tokens=1)
            )
        )


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "You passed 9000 input tokens. However, the model's context length is only 8192 tokens."}),
        (400, {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}),
        (400, {"type": "exceed_context_size_error", "message": "request (9000 tokens) exceeds the available context"}),
        (400, {"message": "The decoder prompt (length 9000) is longer than the maximum model length of 8192."}),
        (400, {"message": "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "code": 400}),
        (400, {"message": "prompt is too long: 208310 tokens > 200000 maximum"}),
        (400, {"message": "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."}),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 8192"}),
        (500, {"type": "exceed_context_size_error", "message": "the request exceeds the available context size"}),
    ],
)  # fmt: skip
def test_a_prompt_that_a_server_finds_too_long_is_told_apart_and_not_sent_again(server: Server, status, error):
    server.script = [(status, {}, {"error": error})]
    with pytest.raises(PromptTooLongError, match="does not fit"):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(400, AnswerError), (401, UsageError), (404, UsageError), (302, AnswerError)]
)
def test_a_refusal_is_one_bounded_line_at_once(server: Server, status: int, kind: type[Exception]):
    server.script = [(status, {}, b"no\n" * 5_000)]
    with pytest.raises(kind) as error:
        ask(server)
    assert type(error.value) is kind
    assert f"HTTP {status} for model 'tiny'" in str(error.value)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "body",
    [b"not json", b"[]", b"{}", chat() | {"choices": []}, chat(finish_reason="content_filter"), chat(message=None)],
)
def test_an_answer_outside_the_contract_is_a_model_error(server: Server, body: object):
    server.script = [(200, {}, body)]
    with pytest.raises(ModelError):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("content", [[{"type": "text", "text": "fine"}], {"text": "fine"}, 7, 0, [], False])
def test_an_answer_that_is_no_text_is_not_taken_for_one(server: Server, content: object):
    server.script = [(200, {}, chat(message={"content": content}))]
    with pytest.raises(ModelError, match="where text belongs"):
        ask(server)


def test_an_answer_without_text_is_empty_only_where_the_model_ended_it_itself(server: Server):
    server.script = [(200, {}, chat(message={"content": None}))]
    assert ask(server).text == ""
    server.script = [(200, {}, chat(message={"content": None}, finish_reason="length"))]
    with pytest.raises(ModelError, match=r"ended an answer with 'length' before any text"):
        ask(server)


def test_an_answer_that_cannot_be_unpacked_is_tried_again_and_then_a_model_error(server: Server):
    server.script = [(200, {"content-encoding": "gzip"}, b"not gzip")]
    with pytest.raises(ModelError, match=r"DecodingError: .* \(3 attempts\)$"):
        ask(server)


def test_an_answer_that_comes_byte_by_byte_does_not_hold_an_audit(server: Server):
    server.script, server.pause_s = [(200, {}, chat())], 0.05  # whole after 8 s
    with pytest.raises(ModelError, match=r"no whole answer within 0\.3 s \(2 attempts\)$"):
        ask(server, HttpSettings(first_wait_s=0.01, attempts=2, timeout_s=0.3))
    assert len(server.bodies) == 2


def test_waiting_for_a_free_connection_is_not_counted(server: Server):
    server.script, server.thinks_s = [(200, {}, chat())], 0.3
    request = GenerationRequest(messages=(Message(role="user", content="hello"),), max_tokens=7)

    async def call() -> list[Completion]:
        generator = HttpGenerator(server.url, "tiny", HttpSettings(attempts=1, timeout_s=1.5, connections=1))
        try:
            return await asyncio.gather(*(generator.generate(request) for _ in range(7)))  # 2.1 s in all
        finally:
            await generator.close()

    assert [answer.text for answer in asyncio.run(call())] == ["fine"] * 7


def test_an_endless_answer_is_cut(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory_audit.models.backbone.generator_http.MAX_BODY_BYTES", 1_000)
    server.script = [(200, {}, chat("x" * 2_000))]
    with pytest.raises(ModelError, match="more than 1000 bytes"):
        ask(server)


def test_the_key_is_read_by_name_sent_and_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    settings = HttpSettings(api_key_env="MY_KEY")
    server.script = [(400, {}, b"bad key sk-secret given")]
    with pytest.raises(ModelError) as error:
        ask(server, settings)
    assert server.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in str(error.value)
    assert "bad key ***" in str(error.value)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(UsageError, match="MY_KEY is not set"):
        HttpGenerator(server.url, "tiny", settings)


def test_a_password_in_the_address_is_refused_without_repeating_it():
    with pytest.raises(UsageError) as error:
        HttpGenerator("http://me:hunter2@127.0.0.1/v1", "tiny")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "supported"),
    [
        (CONTINUED, True),
        (chat(" four five", logprobs={"content": [{"top_logprobs": [FOUR]}]}), False),
        (chat(" four five", logprobs={"content": []}), False),
        (chat("one two three", logprobs={"content": [{"top_logprobs": [FOUR, OTHER]}]}), False),
        (chat(" four five"), False),
    ],
)
def test_prefix_support_is_found_by_behaviour(server: Server, answer: object, supported: bool):  # noqa: FBT001
    server.script = [(200, {}, answer)]
    assert asyncio.run(HttpGenerator(server.url, "tiny", FAST).supports_prefix_logprobs()) is supported


def test_a_server_that_refuses_the_probe_does_not_support_it(server: Server):
    server.script = [(400, {}, b"unknown field continue_final_message")]
    assert asyncio.run(HttpGenerator(server.url, "tiny", FAST).supports_prefix_logprobs()) is False


def test_an_outage_during_the_probe_says_nothing_of_what_the_server_can(server: Server):
    server.script = [(503, {}, b"starting")]
    forced = GenerationRequest(messages=(Message(role="user", content="hi"),), max_tokens=1, prefix="Sure")

    async def call() -> str:
        generator = HttpGenerator(server.url, "tiny", FAST)
        try:
            with pytest.raises(ModelError, match=r"HTTP 503: starting \(3 attempts\)$") as outage:
                await generator.generate(forced)
            assert not isinstance(outage.value, PrefixUnsupportedError)
            server.script = [(200, {}, CONTINUED), (200, {}, chat("fine"))]
            return (await generator.generate(forced)).text
        finally:
            await generator.close()

    assert asyncio.run(call()) == "fine"


def test_a_server_that_answers_all_but_the_probe_does_not_support_it(server: Server):
    server.script = [*[(500, {}, b"KeyError: continue_final_message")] * 3, (200, {}, chat("one two")), (500, {}, b"")]
    assert asyncio.run(HttpGenerator(server.url, "tiny", FAST).supports_prefix_logprobs()) is False
    assert [body["messages"][-1]["role"] for body in server.bodies] == [*["assistant"] * 3, "user", *["assistant"] * 3]


def test_an_outage_that_ends_during_the_probe_is_none(server: Server):
    server.script = [*[(503, {}, b"starting")] * 3, (200, {}, chat("one two")), (200, {}, CONTINUED)]
    assert asyncio.run(HttpGenerator(server.url, "tiny", FAST).supports_prefix_logprobs()) is True


def test_a_server_that_is_not_there_is_not_one_that_continues_no_prefix():
    settings = HttpSettings(attempts=2, first_wait_s=0.01)
    with pytest.raises(ModelError, match=r"ConnectError.*2 attempts"):
        asyncio.run(HttpGenerator("http://127.0.0.1:9/v1", "tiny", settings).supports_prefix_logprobs())


def test_a_prefix_that_would_not_be_continued_is_refused_and_the_server_is_probed_once(server: Server):
    server.script = [(200, {}, chat("one two three"))]

    async def call() -> None:
        generator = HttpGenerator(server.url, "tiny", FAST)
        messages = (Message(role="user", content="hello"),)
        forced = GenerationRequest(messages=messages, max_tokens=1, prefix="Sure", top_logprobs=2)
        for _ in range(2):
            with pytest.raises(PrefixUnsupportedError, match="does not continue a forced prefix"):
                await generator.generate(forced)
        await generator.generate(GenerationRequest(messages=messages, max_tokens=1))
        await generator.close()

    asyncio.run(call())
    assert [body["messages"][-1]["content"] for body in server.bodies] == ["one two three", "hello"]


def test_a_request_that_is_cancelled_while_the_server_is_probed_leaves_the_probe_to_the_others(server: Server):
    server.script = [(200, {}, CONTINUED), (200, {}, chat("fine"))]

    async def call() -> str:
        generator = HttpGenerator(server.url, "tiny", FAST)
        forced = GenerationRequest(messages=(Message(role="user", content="hi"),), max_tokens=1, prefix="Sure")
        hasty = asyncio.create_task(generator.generate(forced))
        await asyncio.sleep(0)
        hasty.cancel()
        try:
            return (await generator.generate(forced)).text
        finally:
            await generator.close()

    assert asyncio.run(call()) == "fine"


@pytest.mark.parametrize(
    "change",
    [
        {"usage": {"prompt_tokens": float("inf")}},
        {"usage": {"completion_tokens": 1e300}},
        {"usage": {"prompt_tokens": -1}},
        {"logprobs": {"content": [{"top_logprobs": [{"token": "yes", "logprob": float("nan")}]}]}},
        {"logprobs": {"content": [{"top_logprobs": [{"token": "yes", "logprob": 1e308}]}]}},
        {"logprobs": {"content": [{"top_logprobs": [{"token": "yes", "logprob": 10**400}]}]}},
    ],
)
def test_numbers_that_no_server_can_mean_are_a_model_error(change: dict[str, object]):
    answer: dict[str, object] = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {}}
    if "usage" in change:
        answer |= change
    else:
        answer["choices"] = [{"message": {"content": "yes"}, "finish_reason": "stop", **change}]
    request = GenerationRequest(messages=(Message(role="user", content="q"),), max_tokens=1, top_logprobs=1)
    with pytest.raises(ModelError, match="not a chat completion"):
        read_completion(answer, request)


def test_half_a_surrogate_pair_in_an_answer_can_be_written_to_a_file():
    answer = {"choices": [{"message": {"content": "a\ud800"}, "finish_reason": "stop"}]}
    request = GenerationRequest(messages=(Message(role="user", content="q"),), max_tokens=1)
    assert read_completion(answer, request).text == "a?"


@pytest.mark.parametrize("held", ["sk-secret\n", " sk-secret", "sk-secret\r\n"])
def test_white_space_around_the_key_is_not_part_of_it(server: Server, monkeypatch: pytest.MonkeyPatch, held: str):
    monkeypatch.setenv("MY_KEY", held)
    server.script = [(200, {}, chat())]
    ask(server, HttpSettings(api_key_env="MY_KEY"))
    assert server.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize("held", ["sk-secret\u2026", "sk-\nsecret", "sk-secret\x07"])
def test_a_key_that_no_header_can_hold_is_refused_by_the_name_of_its_variable(
    server: Server, monkeypatch: pytest.MonkeyPatch, held: str
):
    monkeypatch.setenv("MY_KEY", held)
    with pytest.raises(UsageError, match="MY_KEY holds a character that no key has") as error:
        HttpGenerator(server.url, "tiny", HttpSettings(api_key_env="MY_KEY"))
    assert "secret" not in str(error.value)


def test_a_key_in_the_place_of_its_variables_name_is_not_repeated():
    with pytest.raises(UsageError, match="no name of an environment variable") as error:
        HttpSettings(api_key_env="sk-secret")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("fault", [httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.ReadError])
def test_the_key_is_in_no_reason_and_a_request_that_cannot_be_sent_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, fault: type[httpx.RequestError]
):
    tries = []

    def stream(*_args: object, **_options: object) -> None:
        tries.append(1)
        raise fault(f"{'x' * 150} b'Bearer sk-secret'")

    monkeypatch.setenv("MY_KEY", "sk-secret")
    monkeypatch.setattr(httpx.AsyncClient, "stream", stream)
    generator = HttpGenerator("http://h/v1", "tiny", HttpSettings(api_key_env="MY_KEY", attempts=2, first_wait_s=0.01))
    request = GenerationRequest(messages=(Message(role="user", content="x"),), max_tokens=1)
    with pytest.raises(ModelError, match=fault.__name__) as error:
        asyncio.run(generator.generate(request))
    assert "sk-" not in str(error.value)
    assert len(tries) == (2 if fault is httpx.ReadError else 1)


def test_an_answer_that_quotes_the_key_does_not_get_it_into_a_log(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    server.script = [(200, {}, chat("sk-secret"))]
    with pytest.raises(ModelError, match=r"answered '\*\*\*'"):
        ask(server, HttpSettings(api_key_env="MY_KEY"), choices=("yes", "no"))


@pytest.mark.parametrize(
    "url",
    [
        "http://a b/v1", "http://xn--/v1", "http://ex\u00e4..mple/v1", "http://-\u2026/v1", "http://\ttab/v1",
        "http://h/v1\x7f", "http://h/v1?api-key=secret", "http://[::1/v1",
    ],
)  # fmt: skip
def test_an_address_that_nobody_can_be_asked_at_is_refused_at_once(url: str):
    with pytest.raises(UsageError, match="backbone address") as error:
        HttpGenerator(url, "tiny")
    assert "secret" not in str(error.value)


def test_a_server_that_wants_a_key_is_told_apart_with_what_to_do(server: Server, monkeypatch: pytest.MonkeyPatch):
    server.script = [(401, {}, b"no key")]
    with pytest.raises(UsageError, match=r"HTTP 401 .*no key; name the environment variable .*--backbone-key-env"):
        ask(server)
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with pytest.raises(UsageError, match=r"no key; the key was the one in MY_KEY$"):
        ask(server, HttpSettings(api_key_env="MY_KEY"))


def test_two_models_behind_one_gateway_have_two_ids():
    paths = ("", "/", "/v1", "/v1/", "/a/v1", "/b/v1/")
    ids = [HttpGenerator(f"http://h:80{path}", "m").model_id for path in paths]
    assert ids == [*["openai:m@h:80"] * 4, "openai:m@h:80/a/v1", "openai:m@h:80/b/v1"]
