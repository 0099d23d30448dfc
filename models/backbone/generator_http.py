"""The backbone behind an OpenAI-compatible server that the user already runs (vLLM, SGLang, llama.cpp, a vendor's API).

Uses `POST URL/chat/completions` (`memory_audit.models.backbone.chat_completion`).

A server that answers anew where it was asked to go on, or that knows no such request, would have its odds read at the
wrong word: one probe tells, and forced prefixes are refused, so that attribution samples instead. A server that cannot
be reached tells nothing: the request fails, and the next one probes again. One that fails at the probe alone (some
answer 500 to what they do not know), and answers a plain request between two probes, has told, too.

Retries: connection errors, answers that take too long, 408, 429 and 5xx, with exponential waits or the server's
`Retry-After`, a bounded number of times. Everything else is one line at once. The key is read from a variable named by
the user, and never written out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import httpx

from memory_audit.errors import (
    AnswerError,
    AuditError,
    ModelError,
    ModelLostError,
    PrefixUnsupportedError,
    PromptTooLongError,
    UsageError,
)
from memory_audit.generation import Completion, GenerationRequest, Message
from memory_audit.models.backbone.chat_completion import body_of, check_guides, read_completion
from memory_audit.models.services.retries import RETRIES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HttpGenerator", "HttpSettings", "OutageError"]

MAX_BODY_BYTES = 16 << 20
"""An answer with 20 alternatives for each of 8k tokens has about 10 MB; more is not an answer."""

MAX_EXCERPT = 2_000
"""Bytes of a refusal that are looked at."""

MAX_WAIT_S = 60.0
"""Longest wait before a retry, also where the server asks for more."""

LEAST_ALTERNATIVES = 2
"""A server that lists the chosen token alone says of no other way how likely it is."""

_TOO_LONG = re.compile(
    rb"context[ _](length|size|window)|model length|max_new_tokens. must be|(prompt|input) is too long|"
    rb"input token count|max_tokens must be at least 1, got 0",
    re.IGNORECASE,
)
"""How servers say that a prompt does not fit. The status is 400 with nearly all, and 500 with some. The last is vLLM's
of a prompt that fills the context to the last token, when it has cut the answer to what is left."""

_RETRIED = frozenset({408, 429})
_SERVER_ERROR = 500
_OK = 200
_TOO_LONG_STATUSES = frozenset({400, 413, 422, 500})
_USER_ERRORS = frozenset({401, 403, 404})
_KEY_ERRORS = frozenset({401, 403})

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PLAIN = GenerationRequest(
    messages=(Message(role="user", content="Count from one to five in English words, separated by single spaces."),),
    max_tokens=4,
)
_PROBE = replace(_PLAIN, prefix="one two three", top_logprobs=LEAST_ALTERNATIVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How to talk to the server."""

    api_key_env: str = ""
    """NAME of the environment variable that holds the key; empty sends none."""

    timeout_s: float = 300.0
    """For one attempt, once a connection is free for it: a long prompt on a CPU server takes minutes."""

    connect_timeout_s: float = 10.0
    attempts: int = 5
    """Tries of one request, the first included."""

    first_wait_s: float = 0.5
    """Wait before the second try; doubles with each one."""

    connections: int = 32
    """Requests in flight; others wait for a free one."""

    def __post_init__(self) -> None:
        if self.api_key_env and _VARIABLE.fullmatch(self.api_key_env) is None:  # not repeated: it may be the key itself
            raise UsageError("backbone_key_env is no name of an environment variable; name the one that holds the key")


class _RetryableError(Exception):
    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class OutageError(ModelLostError):
    """All attempts failed with what may pass: this says nothing of what the server can do."""


class HttpGenerator:
    """Implements `memory_audit.models.protocols.Generator` over HTTP.

    Args:
        url: Base address, up to and including `/v1`.
        model: Name of the model as the server knows it.

    Raises:
        UsageError: an address that cannot be meant or has a password in it, or a named key variable that is not set or
            holds what no key can be.
    """

    def __init__(self, url: str, model: str, settings: HttpSettings | None = None) -> None:
        self._settings = settings or HttpSettings()
        address = _address(url)
        self._key = _key(self._settings.api_key_env)
        path = address.path.rstrip("/")
        # Behind one gateway another path may be another model; /v1 is what a server by itself has.
        self.model_id = f"openai:{model}@{address.netloc}{'' if path == '/v1' else path}"
        self._url, self._model = url.rstrip("/"), model
        self._client: httpx.AsyncClient | None = None
        self._free: asyncio.Semaphore | None = None
        self._probing: asyncio.Task[bool] | None = None

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`.

        Raises:
            UsageError: the server does not know the key, the path or the model.
            PrefixUnsupportedError: a prefix is forced, which a probe showed that the server cannot continue.
            PromptTooLongError: the server says that prompt and answer do not fit into the model's context.
        """
        if request.prefix and not await asyncio.shield(self._probe()):  # others wait for it, too
            raise PrefixUnsupportedError(
                f"{self._url}: does not continue a forced prefix with log-probabilities of {LEAST_ALTERNATIVES} "
                "or more alternatives; the agent cannot force one"
            )
        return await self._answer(request)

    def _probe(self) -> asyncio.Task[bool]:
        """Return the probe that runs or has told; one that failed is forgotten, as an outage is over some time."""
        probe = self._probing
        if probe is None or (probe.done() and (probe.cancelled() or probe.exception() is not None)):
            probe = self._probing = asyncio.ensure_future(self.supports_prefix_logprobs())
        return probe

    async def _answer(self, request: GenerationRequest) -> Completion:
        try:
            completion = read_completion(await self._post(body_of(self._model, request)), request)
            check_guides(completion.text, request, self.model_id)
        except AuditError as error:
            if self._key and self._key in str(error):  # an answer may quote the key
                raise type(error)(self._masked(str(error))) from None
            raise
        return completion

    async def supports_prefix_logprobs(self) -> bool:
        """Tell whether the server continues a forced prefix and returns log-probabilities of what might follow.

        Asked by behaviour, not by name: the continuation of "one two three" must start with "four", and an alternative
        be listed beside it. Attribution grades harm by these log-probabilities; where they are missing it samples.

        Raises:
            ModelError: the server could not be asked.
        """
        try:
            return await self._continues_a_prefix()
        except OutageError:
            await self._answer(_PLAIN)  # down for everything, where this fails as well
        try:
            return await self._continues_a_prefix()
        except OutageError:
            return False

    async def _continues_a_prefix(self) -> bool:
        try:
            completion = await self._answer(_PROBE)
        except OutageError:
            raise
        except (ModelError, UsageError):
            return False
        alternatives = len(completion.top[0]) if completion.top else 0
        return alternatives >= LEAST_ALTERNATIVES and completion.text.strip().lower().startswith("four")

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            await self._client.aclose()
            self._client = self._free = None

    async def _post(self, body: Mapping[str, object]) -> Mapping[str, Any]:
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        for attempt in range(1, self._settings.attempts + 1):
            try:
                return await self._attempt(body)
            except _RetryableError as error:
                if attempt == self._settings.attempts:
                    raise OutageError(f"{self._url}: {error} ({attempt} attempts)") from None
                spread = 1 + digest[attempt % len(digest)] / 255  # requests that failed together do not return together
                wait_s = error.wait_s or self._settings.first_wait_s * 2 ** (attempt - 1) * spread
                RETRIES["backbone"] += 1
                await asyncio.sleep(min(wait_s, MAX_WAIT_S))
        raise ModelError(f"{self._url}: attempts is {self._settings.attempts}, expected at least 1")

    async def _attempt(self, body: Mapping[str, object]) -> Mapping[str, Any]:
        status, headers, raw = await self._exchange(body)
        if status in _TOO_LONG_STATUSES and _TOO_LONG.search(raw, 0, MAX_EXCERPT):
            raise PromptTooLongError(f"{self._url}: the prompt does not fit: {self._excerpt(raw)}")
        if status in _RETRIED or status >= _SERVER_ERROR:
            raise _RetryableError(f"HTTP {status}: {self._excerpt(raw)}", _retry_after_s(headers))
        if status != _OK:
            kind = UsageError if status in _USER_ERRORS else AnswerError
            told = f"{self._url}: HTTP {status} for model {self._model!r:.80}: {self._excerpt(raw)}"
            raise kind(told + (self._about_the_key() if status in _KEY_ERRORS else ""))
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            raise AnswerError(f"{self._url}: the answer is not JSON: {self._excerpt(raw)}") from None
        if not isinstance(answer, dict):
            raise AnswerError(f"{self._url}: the answer is not a JSON object: {self._excerpt(raw)}")
        return answer

    async def _exchange(self, body: Mapping[str, object]) -> tuple[int, httpx.Headers, bytearray]:
        client, free = self._connected()
        timeout_s = self._settings.timeout_s
        async with free:  # waiting for a free connection is not the server's fault, and not counted
            try:
                # httpx would count from one read to the next: a byte now and then would hold an audit for ever.
                async with (
                    asyncio.timeout(timeout_s),
                    client.stream("POST", f"{self._url}/chat/completions", json=body) as response,
                ):
                    raw = bytearray()
                    async for chunk in response.aiter_bytes():
                        raw += chunk
                        if len(raw) > MAX_BODY_BYTES:
                            raise AnswerError(f"{self._url}: an answer has more than {MAX_BODY_BYTES} bytes")
                    return response.status_code, response.headers, raw
            except TimeoutError:
                raise _RetryableError(f"no whole answer within {timeout_s:g} s") from None
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:  # ours, and the same next time
                raise ModelError(f"{self._url}: {self._reason(error)}") from None
            except httpx.RequestError as error:
                raise _RetryableError(self._reason(error)) from None

    def _connected(self) -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
        if self._client is None or self._free is None:
            self._free = asyncio.Semaphore(self._settings.connections)
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=httpx.Timeout(None, connect=self._settings.connect_timeout_s),
                limits=httpx.Limits(max_connections=self._settings.connections),
            )
        return self._client, self._free

    def _excerpt(self, raw: bytearray) -> str:
        """Return the start of a body on one line; a server that echoes the key does not get it into a log."""
        text = " ".join(bytes(raw[:MAX_EXCERPT]).decode(errors="replace").split())
        return self._masked(text)[:200]

    def _reason(self, error: Exception) -> str:
        return f"{type(error).__name__}: {self._masked(str(error)):.160}"

    def _masked(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def _about_the_key(self) -> str:
        """Say after a refusal where the key came from, or how to name one."""
        if self._settings.api_key_env:
            return f"; the key was the one in {self._settings.api_key_env}"
        return "; name the environment variable that holds the server's key: --backbone-key-env, or backbone_key_env"


def _address(url: str) -> SplitResult:
    """Return the parts of an address, none of which is repeated where it cannot be meant: it may hold a password."""
    try:
        address, host = urlsplit(url), httpx.URL(url).host
    except (httpx.InvalidURL, ValueError):  # ValueError: of brackets, a port, or a host name that IDNA cannot spell
        raise UsageError("backbone address is none that can be asked; expected http://HOST:PORT/v1") from None
    if not host or " " in (address.hostname or ""):
        raise UsageError("backbone address names no host; expected http://HOST:PORT/v1")
    if address.username or address.password:
        raise UsageError("backbone address holds a user or a password; put the key in a variable (--backbone-key-env)")
    if address.query:
        raise UsageError("backbone address has a query (after ?), which requests cannot carry; leave it out")
    return address


def _key(variable: str) -> str:
    """Read the key from the environment variable of that name; an empty name is no key.

    Raises:
        UsageError: names the variable and never what it holds.
    """
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()  # of a file it often has the end of the line
    if not key:
        raise UsageError(f"environment variable {variable} is not set: it should hold the key")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"environment variable {variable} holds a character that no key has; copy the key once more")
    return key


def _retry_after_s(headers: httpx.Headers) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None
