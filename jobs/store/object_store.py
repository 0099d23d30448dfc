"""Stores in an object store: `s3://bucket/prefix`, `gs://…`, `az://…`, by the library obstore.

Objects have the names of a store's files (`memory_audit.snapshot.layout`). A version is published by creating its
manifest if that name is absent, and by no other condition: services that lack If-Match can be used too. Uploads are
single requests: one that is killed leaves nothing. Credentials, region and endpoint come from the environment, by the
names that the services' own tools have (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).

Whether an endpoint keeps the condition is tried before anything is written (`check_condition`), by several writers at
once: some ignore it (rclone 1.75 `serve s3`), others keep it for one writer after the other alone (OpenStack Swift
2.38). That is a test and no proof.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from memory_audit.errors import AuditError, IncompleteError, UsageError, VerificationError
from memory_audit.jobs.store.object_lease import ObjectLease, held
from memory_audit.provenance import durable
from memory_audit.provenance.mirror import Stored, mirror_of, mirrored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from obstore.store import ObjectStore

__all__ = ["ObjectStoreRemote", "as_kept", "place_of"]

AT_ONCE = 16
"""Requests in flight: a service answers in tens of milliseconds, and a version has a few hundred files."""

WRITERS = 8
ROUNDS = 3
"""Of writers at once who try to create one name. Of Swift's rounds, seven in ten show several who did."""

TIMEOUT_S = 30
CONNECT_S = 5
RETRIES = 3
RETRY_S = 60
"""Of one request with its retries: a command may then be started again."""

_ADDRESS = re.compile(r"(?:s3|gs|az)://[^/\s?#]+(?:/[^\s?#]*)?")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_ASKED = re.compile(r"Error performing ([A-Z]+ [^\s?]{1,200})")
_STATUS = re.compile(r"status code: ([0-9]{3})")

NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Who is asked for a machine's role, where the environment has no credentials."""

CREDENTIALS = frozenset({
    "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken", "RequestExpired",
    "SignatureDoesNotMatch", "TokenRefreshRequired",
})  # fmt: skip


def place_of(named: str) -> Path:
    """Return the folder of a store as a user names it: a path, or an address whose mirror it then is.

    Raises:
        UsageError: an address that is none, or whose library is not installed.
    """
    if "://" not in named:
        return Path(named)
    if _ADDRESS.fullmatch(named) is None:
        raise UsageError(f"{named!r:.200} is no address of a store, expected s3://bucket/prefix, gs://… or az://…")
    remote = ObjectStoreRemote(address=named.rstrip("/"))
    remote.open()
    return remote.attach()


@contextmanager
def as_kept(store: Path) -> Iterator[Path]:
    """Lend a store as it is kept: of one in an object store a mirror that has nothing yet, so that all is fetched."""
    mirror = mirror_of(store)
    if mirror is None:
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="memaudit-") as folder:
        yield mirrored(Path(folder), mirror.remote)


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ObjectStoreRemote:
    """The files under one address (`memory_audit.provenance.mirror.Remote`); it is equal to others of that address."""

    address: str
    keeps_versions: bool = field(default=False, compare=False)
    _objects: ObjectStore | None = field(default=None, repr=False, compare=False)
    _lease: ObjectLease | None = field(default=None, repr=False, compare=False)
    _conditional: bool = field(default=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as an address: another machine has credentials of its own."""
        return _remote, (self.address,)

    def attach(self) -> Path:
        """Return its mirror in the user's cache."""
        name = hashlib.sha256(self.address.encode()).hexdigest()[:32]
        folder = Path(platformdirs.user_cache_dir("memaudit")) / "stores" / name
        durable.ensure_folder(folder, mode=0o700)
        return mirrored(folder, self)

    def open(self) -> ObjectStore:
        """Return the library's handle. Raises UsageError where it lacks what it needs."""
        if self._objects is None:
            try:
                from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra
                from obstore.store import from_url  # noqa: PLC0415
            except ImportError:
                raise UsageError(f"{self.address} needs the extra s3: pip install 'memory-audit[s3]'") from None
            options: Any = {
                "client_options": {
                    "timeout": timedelta(seconds=TIMEOUT_S), "connect_timeout": timedelta(seconds=CONNECT_S),
                    "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true",
                },
                "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
            }  # fmt: skip
            try:
                self._objects = from_url(self.address, **options)
            except (BaseError, ValueError) as error:
                raise UsageError(f"{self.address}: {_first_line(error)}") from None
        return self._objects

    def listing(self, prefix: str = "") -> dict[str, Stored]:
        """Return all files below a folder, to what is known of them."""
        found: dict[str, Stored] = {}
        with self._asking("list"):
            for batch in self.open().list(prefix or None):
                for item in batch:
                    found[item["path"]] = Stored(item["size"], int(item["last_modified"].timestamp() * 1_000))
        return found

    def get(self, name: str, max_bytes: int) -> bytes | None:
        """Read a file; None where there is none. Raises VerificationError where it is larger."""
        with self._asking("read"):
            try:
                answer = self.open().get(name)
            except FileNotFoundError as error:
                if _code(error) in NO_BUCKET:
                    raise
                return None
            if answer.meta["size"] > max_bytes:
                raise VerificationError(f"{name}: {answer.meta['size']} bytes, at most {max_bytes} are read")
            return bytes(answer.bytes())

    def get_all(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Read many files, as they come; those that are missing are left out."""
        if not sizes:
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(sizes))) as pool:
            asked = {pool.submit(self.get, name, size): name for name, size in sizes.items()}
            try:
                for answer in as_completed(asked):
                    data = answer.result()
                    if data is not None:
                        yield asked.pop(answer), data
            finally:
                pool.shutdown(cancel_futures=True)

    def put_all(self, files: Mapping[str, Path]) -> None:
        """Write many files."""

        def put(name: str, path: Path) -> None:
            self.put(name, path.read_bytes())

        with ThreadPoolExecutor(AT_ONCE) as pool:
            sent = [pool.submit(put, name, path) for name, path in files.items()]
            try:
                for done in as_completed(sent):
                    done.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def put(self, name: str, data: bytes) -> None:
        """Write a file, over one that is there."""
        with self._asking("write"):
            self.open().put(name, data, use_multipart=False)

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; False where it is there already, with another content."""
        with self._asking("write"):
            from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

            try:
                self.open().put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:  # also a retry of this request, whose first answer was lost
                return self.get(name, len(data)) == data
            return True

    def remove(self, names: Iterable[str]) -> dict[str, str]:
        """Remove files; return those that stay, to why."""
        names, why = list(names), "it is still there"
        if not names:
            return {}
        try:
            with self._asking("erase in"):
                self.open().delete(names)
        except AuditError as error:
            why = str(error)
        else:
            return {}
        there = self.listing()
        return {name: why for name in names if name in there}

    @contextmanager
    def hold(self, *, wait_s: float) -> Iterator[None]:
        """Keep other writers out. Raises IncompleteError where they are there all the time."""
        with held(self, "hold", "publish", wait_s=wait_s) as lease:
            if lease is None:
                raise IncompleteError(f"another command is at work in {self.address}: start again when it is done")
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def check_held(self) -> None:
        """Make sure that nobody took the store over. Raises IncompleteError."""
        if self._lease is not None:
            self._lease.check()

    def check_condition(self) -> None:
        """Try, once in a process, whether of several writers at once exactly one creates a name.

        Raises:
            UsageError: none or several were told that they did: a version could overwrite another.
        """
        for _ in range(0 if self._conditional else ROUNDS):
            name = f"scratch/condition-{secrets.token_hex(8)}"
            with ThreadPoolExecutor(WRITERS) as pool:
                won = sum(pool.map(lambda data, name=name: self._tries(name, data), map(str, range(WRITERS))))
            self.remove([name])
            if won != 1:
                raise UsageError(
                    f"{self.address}: {won} of {WRITERS} writers at once were told that they created the same object, "
                    "expected one: this endpoint ignores If-None-Match, and versions could be lost; nothing was written"
                )
        self._conditional = True

    def _tries(self, name: str, data: str) -> bool:
        with self._asking("write"):
            from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

            try:
                made = self.open().put(name, data.encode(), mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            if self.address.startswith("s3:") and made["version"] not in {None, "null"}:
                self.keeps_versions = True
            return True

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        """Turn what the library raises into errors of this project; a service's answer is told by its code."""
        try:
            yield
        except AuditError:
            raise
        except FileNotFoundError as error:
            raise UsageError(self._refused(verb, error)) from None
        except Exception as error:
            from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

            if not isinstance(error, BaseError):
                raise
            told = self._refused(verb, error)
            raise (UsageError if _is_refused(error) else IncompleteError)(told) from None

    def _refused(self, verb: str, error: Exception) -> str:
        code, status = _code(error), _status(error)
        if code in NO_BUCKET:
            return f"cannot {verb} {self.address}: there is no such bucket"
        if code in CREDENTIALS:
            return f"cannot {verb} {self.address}: the credentials are wrong or have expired ({code})"
        if status in {"401", "403"}:
            return f"cannot {verb} {self.address}: no permission ({code or status})"
        if code or status:
            return f"cannot {verb} {self.address}: the service answers {code or status}; start again later"
        if any(host in str(error) for host in METADATA):
            return f"cannot {verb} {self.address}: no credentials in the environment, and this machine has no role"
        asked = _ASKED.search(str(error))
        return f"cannot {verb} {self.address}: no answer to {asked[1] if asked else 'a request'}; start again later"


def _remote(address: str) -> ObjectStoreRemote:
    return ObjectStoreRemote(address=address)


def _is_refused(error: Exception) -> bool:
    """Tell whether asking again would be refused again."""
    known = _code(error) in NO_BUCKET | CREDENTIALS or _status(error) in {"401", "403"}
    return known or any(host in str(error) for host in METADATA)


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found[1] if found else ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
