#!/usr/bin/env bash
# crewai 1.15.30 (memory over LanceDB, its default): `reset(scope="/team")` also deletes the scopes "/team-b", "/team.b", "/team b".
#
# Guess: it deletes the scope and what lies below it, as its documentation says.
# Seen: it deletes every scope between "/team" and "/team/…" in the order of code points, so each whose name goes on with a
# character before "/": blank, hyphen, dot and others. "/teams" stays. `forget` of the same scope draws yet another line.
#
# Output seen:
#   stored: /team, /team b, /team-b, /team.b, /team/x, /teams
#   reset /team, left: /teams
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check crewai==1.15.30 lancedb==0.40.0
cat > "$folder/seen.py" <<'PYTHON'
import hashlib
import sys

from crewai.memory.unified_memory import Memory


def embed(texts):
    return [[byte - 128.0 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]


memory = Memory(storage=sys.argv[1], embedder=embed)
for scope in ("/team", "/team-b", "/team.b", "/team b", "/team/x", "/teams"):
    memory.remember(f"A note of {scope}.", scope=scope, categories=["note"], metadata={}, importance=0.5)
with open(sys.argv[2], "w") as seen:
    print("stored:", ", ".join(sorted(record.scope for record in memory.list_records())), file=seen)
    memory.reset(scope="/team")
    print("reset /team, left:", ", ".join(sorted(record.scope for record in memory.list_records())), file=seen)
PYTHON
cat > "$folder/expected" <<'TEXT'
stored: /team, /team b, /team-b, /team.b, /team/x, /teams
reset /team, left: /teams
TEXT
HOME=$folder CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true \
    "$folder/venv/bin/python" "$folder/seen.py" "$folder/memory" "$folder/seen" >/dev/null
cat "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
