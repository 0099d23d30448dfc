#!/usr/bin/env bash
# crewai 1.15.30 (memory over LanceDB, its default): `forget(scope=…)` deletes more than the scope, and with `older_than` what is new.
#
# Guess: forget(scope="/user/1") deletes the memories of /user/1 and of scopes below it; with `older_than` only those of
# them that are older; with `record_ids` only those of them that lie in the scope.
# Seen: it also deletes /user/10, as the scope is compared as a text's beginning without a separator, and all memories of
# the root scope "/". With `older_than` a year ago, memories made just now are deleted from the scope: the date is held
# against the root's memories alone. With `record_ids` the scope is not looked at. The returned count says how many went.
# So a connector deletes by id alone, and counts every other owner's memories before and after.
#
# Output seen:
#   stored: /, /user/1, /user/10, /user/2
#   forget /user/1: 3 deleted, left: /user/2
#   forget /user/1 older than a year: 2 deleted, left: /, /user/2
#   forget the id of /user/2 in scope /user/1: 1 deleted, left: /, /user/1, /user/10
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check crewai==1.15.30 lancedb==0.40.0
cat > "$folder/seen.py" <<'PYTHON'
import hashlib
import sys
import tempfile
from datetime import datetime, timedelta, timezone

from crewai.memory.unified_memory import Memory

SCOPES = ("/user/1", "/user/10", "/user/2", "/")


def embed(texts):
    return [[byte - 128.0 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]


def made():
    memory = Memory(storage=tempfile.mkdtemp(dir=sys.argv[1]), embedder=embed)
    for scope in SCOPES:
        memory.remember(f"A note of {scope}.", scope=scope, categories=["note"], metadata={}, importance=0.5)
    return memory


def scopes(memory):
    return ", ".join(sorted(record.scope for record in memory.list_records()))


year_ago = (datetime.now(timezone.utc) - timedelta(days=365)).replace(tzinfo=None)
seen = open(sys.argv[2], "w")
memory = made()
print("stored:", scopes(memory), file=seen)
gone = memory.forget(scope="/user/1")
print(f"forget /user/1: {gone} deleted, left: {scopes(memory)}", file=seen)
memory = made()
gone = memory.forget(scope="/user/1", older_than=year_ago)
print(f"forget /user/1 older than a year: {gone} deleted, left: {scopes(memory)}", file=seen)
memory = made()
other = next(record.id for record in memory.list_records() if record.scope == "/user/2")
gone = memory.forget(scope="/user/1", record_ids=[other])
print(f"forget the id of /user/2 in scope /user/1: {gone} deleted, left: {scopes(memory)}", file=seen)
seen.close()
PYTHON
cat > "$folder/expected" <<'TEXT'
stored: /, /user/1, /user/10, /user/2
forget /user/1: 3 deleted, left: /user/2
forget /user/1 older than a year: 2 deleted, left: /, /user/2
forget the id of /user/2 in scope /user/1: 1 deleted, left: /, /user/1, /user/10
TEXT
HOME=$folder CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true \
    "$folder/venv/bin/python" "$folder/seen.py" "$folder" "$folder/seen" >/dev/null
cat "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
