"""Hand an audit to a Ray cluster as a job, and ask what became of it (Ray Jobs over the dashboard's HTTP address).

The submission id is `memaudit-STORE-DATE`: Ray takes each id once, so a night's audit that is submitted twice runs
once. It is a guard against a doubled cron line, not a lock: two names are two runs.

A job's command is stored by the cluster and shown on its dashboard. Therefore no key is ever put there: what looks like
one is refused, key files are left out of what is uploaded, and a job finds its keys by reference, as the name of a file
or of a variable that the cluster's own nodes hold.

Not here: starting clusters (`ray up ray_cluster.yaml`), and starting a job again. It dies with its cluster; submit it
again with the same RUN folder and it continues.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import stat
import time
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import aiohttp
from ray.exceptions import AuthenticationError, RayError
from ray.job_submission import JobSubmissionClient

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.formats.outside_file import walk

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ray.job_submission import JobDetails

__all__ = ["logs", "status", "submission_id_of", "submit"]

EXCLUDED = ("*.key", "*.key.*", ".*.part", ".git", ".venv", "__pycache__")
"""Never uploaded with a working folder: private keys, those that a rotation is about and the scratch files of a killed
writer included, and what the nodes have themselves (gitignore patterns: without a slash they hold at every depth)."""

MAX_ID_CHARACTERS, MAX_NAME_CHARACTERS = 128, 64

NOT_READY = "No available agent"
"""What a cluster says that has just started: its dashboard answers before a node can take a job."""

PATIENCE_S, RETRY_S = 60.0, 2.0
"""How long a cluster may take until it does, and how often it is asked."""

GREETING_S, ANSWER_S = 10.0, 60.0
"""How long what listens at an address may take to say that it is a cluster, and to answer about a job."""

REDIRECTING = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Ray's client takes its address from these variables, whatever it is told; the second is the one of `audit`."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECRET_VALUE = re.compile(r"PRIVATE\+KEY\+|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/@\s]*:[^/@\s]*@")
"""A signer key as Go's note package writes it, a PEM key, and a URL that holds a password."""

_FAILURES = (RuntimeError, ValueError, OSError, KeyError, TypeError, RayError)
"""What Ray's client raises where a cluster refuses or cannot be reached, or where something else answers."""


def submission_id_of(store: str, day: dt.date) -> str:
    """Return `memaudit-STORE-DATE`, the store's name reduced to characters that are safe in an address.

    Where that changes it, a digest tells it from other names that are reduced to the same.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", store).strip("-._")[:MAX_NAME_CHARACTERS] or "store"
    if name != store:
        digest = hashlib.sha256(store.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[: MAX_NAME_CHARACTERS - len(digest) - 1]}-{digest}"
    return f"memaudit-{name}-{day.isoformat()}"


def submit(address: str, argv: Sequence[str], *, submission_id: str, working_dir: Path | None = None) -> str:
    """Hand a command to the cluster and return at once.

    Args:
        address: The dashboard, `http://HOST:8265`.
        argv: The command as words, e.g. `["memaudit", "audit", ...]`; paths are those of the cluster's nodes.
        submission_id: Name of the job; one that the cluster knows is refused.
        working_dir: A folder to upload as the job's working folder; None where the nodes share one.

    Returns:
        The submission id.

    Raises:
        UsageError: no cluster there, or none that answers in time, an id that was used, a folder that is not there or
            cannot be uploaded, or what looks like a secret.
    """
    if not argv:
        raise UsageError("no command to submit")
    if _ID.fullmatch(submission_id) is None or len(submission_id) > MAX_ID_CHARACTERS:
        raise UsageError(
            f"submission id {submission_id!r:.80}: use at most {MAX_ID_CHARACTERS} letters, digits, dots, _ and -"
        )
    for number, word in enumerate(argv):
        if _SECRET_VALUE.search(word):
            raise UsageError(
                f"word {number + 1} of the command looks like a secret, and a job's command is shown on the "
                "dashboard: pass the path of a file"
            )
    runtime_env: dict[str, Any] = {}
    if working_dir is not None:
        if not working_dir.is_dir():
            raise UsageError(f"{working_dir}: no such folder to upload as the job's working folder")
        _check_upload(working_dir)
        runtime_env = {"working_dir": str(working_dir), "excludes": list(EXCLUDED)}
    client = _client(address)
    deadline = time.monotonic() + PATIENCE_S
    refused = False
    while True:
        try:
            accepted: str = client.submit_job(
                entrypoint=shlex.join(argv), submission_id=submission_id, runtime_env=runtime_env
            )
        except _FAILURES as error:
            if "already exists" in str(error) and refused:
                return submission_id  # the cluster took what it said it could not: it had only answered too late
            if "already exists" in str(error):
                raise UsageError(
                    f"job {submission_id} was submitted to {address} already: see `memaudit status`, "
                    "or submit under another name to run it twice"
                ) from None
            if isinstance(error, TimeoutError):
                raise UsageError(
                    f"{address} did not say whether it took job {submission_id} ({_line(error)}): see `memaudit status`"
                ) from None
            if NOT_READY not in str(error) or time.monotonic() >= deadline:
                raise UsageError(f"{address} did not take job {submission_id}: {_line(error)}") from None
            refused = True
            time.sleep(RETRY_S)
        else:
            return accepted


def status(address: str, submission_id: str) -> JobDetails:
    """Say where a job is: Ray's own `status`, `message` and `driver_exit_code`, among others.

    Raises:
        UsageError: no cluster there, or no such job.
    """
    client = _client(address)
    try:
        return client.get_job_info(submission_id)
    except _FAILURES as error:
        raise _unknown(address, submission_id, error) from None


def logs(address: str, submission_id: str, *, follow: bool = False) -> Iterator[str]:
    """Yield what a job printed, in pieces as they come.

    Args:
        address: The dashboard, `http://HOST:8265`.
        submission_id: Name of the job.
        follow: Go on until the job has ended; otherwise one piece, what there is now.

    Raises:
        UsageError: no cluster there, or no such job.
        IncompleteError: the connection was lost while following; the job itself goes on.
    """
    client = _client(address)
    try:
        so_far: str = client.get_job_logs(submission_id)
    except _FAILURES as error:
        raise _unknown(address, submission_id, error) from None
    if follow:
        yield from _follow(client, address, submission_id)
    elif so_far:
        yield so_far


def _follow(client: Any, address: str, submission_id: str) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    stream = client.tail_job_logs(submission_id)
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(stream))
            except StopAsyncIteration:
                return
            except (*_FAILURES, aiohttp.ClientError) as error:
                raise IncompleteError(
                    f"lost the log of {submission_id} at {address} ({_line(error)}); the job may still run: "
                    "see `memaudit status`"
                ) from None
    finally:
        loop.run_until_complete(stream.aclose())
        loop.close()


def _client(address: str) -> Any:
    if not address.startswith(("http://", "https://")) or _SECRET_VALUE.search(address):
        raise UsageError(f"{address!r:.120}: give the dashboard's address as http://HOST:8265, without a password")
    try:
        with _not_redirected():
            return _PunctualClient(address)
    except AuthenticationError:
        raise UsageError(
            f"{address} asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file that holds it"
        ) from None
    except _FAILURES as error:
        why = f"{_line(error)} is missing in its answer" if isinstance(error, KeyError) else _line(error)
        raise UsageError(
            f"no Ray cluster answers at {address} ({why}); start one, or name its dashboard's address"
        ) from None


@contextmanager
def _not_redirected() -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in REDIRECTING if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


class _PunctualClient(JobSubmissionClient):  # type: ignore[misc]
    """Ray's client, which by itself waits for ever for what listens and says nothing."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        patience_s = GREETING_S if endpoint == "/api/version" else ANSWER_S
        if method == "PUT":  # an upload takes as long as its folder is large
            return super()._do_request(method, endpoint, **options)
        try:
            return super()._do_request(method, endpoint, timeout=patience_s, **options)
        except OSError as error:
            if "timed out" not in str(error):
                raise
            raise TimeoutError(f"it said nothing for {patience_s:.0f} s") from None


def _check_upload(folder: Path) -> None:
    """Refuse a folder that Ray would never finish reading: it opens whatever is there, and follows every link.

    What is ignored by a `.gitignore` counts too.

    Raises:
        UsageError: names what is in the way.
    """
    for path, is_folder in walk(folder, follow_links=True, skip=_is_excluded):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:  # a link to nothing, which Ray passes over
            continue
        except OSError:
            mode = 0
        if is_folder or not mode:
            raise UsageError(f"{path}: too many folders below {folder}, or too deep; are links there that lead back?")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path}: is no file, and uploading it would not end; name another working folder")


def _is_excluded(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in EXCLUDED)


def _unknown(address: str, submission_id: str, error: Exception) -> UsageError:
    if "does not exist" in str(error) or "status code 404" in str(error):
        return UsageError(f"no job {submission_id!r:.140} on {address}: was it submitted there?")
    return UsageError(f"{address} did not answer about job {submission_id!r:.140}: {_line(error)}")


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1][:200]
