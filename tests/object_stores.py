"""Real S3 servers on loopback, as their wheels bring them: SeaweedFS, and rclone, which ignores conditions."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"
STARTS_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server and the keys of one who may do all."""

    url: str
    access_key: str = "MEMAUDITKEY"
    secret_key: str = "memaudit-secret"  # noqa: S105 - of a server on loopback

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs, as variables."""
        return self.with_keys(self.access_key, self.secret_key)

    def with_keys(self, access_key: str, secret_key: str) -> dict[str, str]:
        """Return the variables of a client with other keys."""
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key,
        }  # fmt: skip

    def request(self, method: str, path: str, query: str = "", body: bytes = b"") -> bytes:
        """Ask what obstore has no call for (making a bucket), signed by AWS Signature Version 4."""
        now, digest = dt.datetime.now(dt.UTC), hashlib.sha256(body).hexdigest()
        day, stamp = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
        headers = {"host": self.url.removeprefix("http://"), "x-amz-content-sha256": digest, "x-amz-date": stamp}
        names = ";".join(sorted(headers))
        canonical = [method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest]
        scope = f"{day}/{REGION}/s3/aws4_request"
        hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        key = f"AWS4{self.secret_key}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        )
        request = urllib.request.Request(  # noqa: S310 - on loopback
            f"{self.url}{path}{'?' + query if query else ''}", data=body or None, method=method, headers=headers
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.read()

    def make_bucket(self, name: str) -> None:
        self.request("PUT", f"/{name}")

    def keep_versions(self, bucket: str) -> None:
        body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        self.request("PUT", f"/{bucket}", "versioning=", body)


READER = ("READERKEY", "reader-secret")
"""Keys of one who may read and list the bucket `shared`, at SeaweedFS."""


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """Run SeaweedFS, all of it in one process."""
    ports = free_ports(7)
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3 = map(str, ports)
    server = S3Server(f"http://127.0.0.1:{s3}")
    identities = {"identities": [
        {"name": "admin", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
         "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}]},
        {"name": "reader", "actions": ["Read:shared", "List:shared"],
         "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}]},
    ]}  # fmt: skip
    (folder / "s3.json").write_text(json.dumps(identities))
    (folder / "data").mkdir()
    command = [
        program("weed"), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.volumeSizeLimitMB=64",
        f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=64", "-filer",
        f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}", "-s3", f"-s3.port={s3}",
        f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    with _running(command, folder, server):
        yield server


@contextmanager
def rclone(folder: Path) -> Iterator[S3Server]:
    """Run `rclone serve s3` over a folder: it takes a conditional write for an unconditional one."""
    (port,) = free_ports(1)
    server = S3Server(f"http://127.0.0.1:{port}")
    (folder / "data").mkdir()
    keys = f"{server.access_key},{server.secret_key}"
    config = folder / "rclone.conf"
    config.touch()
    command = [
        program("rclone"), "serve", "s3", "--config", str(config), "--auth-key", keys, "--addr", f"127.0.0.1:{port}",
        str(folder / "data"),
    ]  # fmt: skip
    with _running(command, folder, server):
        yield server


def program(name: str) -> str:
    """Return where a wheel has put its program."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed: the extra dev brings it"
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [it.getsockname()[1] for it in sockets]
    finally:
        for it in sockets:
            it.close()


@contextmanager
def _running(command: list[str], folder: Path, server: S3Server) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=folder) as process:
        try:
            _wait(server, process, log)
            yield
        finally:
            process.kill()


def _wait(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTS_S
    while True:
        try:
            server.request("PUT", "/ready")
        except (OSError, urllib.error.URLError):
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < until, log.read_text()[-2_000:]
            time.sleep(0.1)
        else:
            return
