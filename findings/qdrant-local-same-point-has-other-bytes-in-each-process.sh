#!/usr/bin/env bash
# qdrant-client 1.20.0 (local mode): the same point, written by the same program once more, is stored as other bytes.
#
# Guess: one point with one id, vector and payload is stored as the same bytes by every process.
# Seen: a point is stored as a pickle that holds a set of strings, the names of the fields that were given. The order of a
# set differs between processes, as Python salts the hashes of strings; so the bytes take several forms, all equal when
# they are read. With a fixed PYTHONHASHSEED there is one form. So a digest of the row, the file or a backup does not tell a
# changed memory from one that was written again; compare ids, vectors and payloads instead.
#
# Output seen:
#   8 processes with salts of their own: several forms of the stored bytes
#   read back: 1 point
#   the salt fixed, 3 processes: 1 form
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check qdrant-client==1.20.0 pydantic==2.14.4
cat > "$folder/write.py" <<'PYTHON'
import hashlib
import sqlite3
import sys

from qdrant_client import QdrantClient, models

client = QdrantClient(path=sys.argv[1])
client.create_collection("notes", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
note = models.PointStruct(id=1, vector=[1.0, 0.0], payload={"text": "Orders go to Ann.", "day": 3})
client.upsert("notes", [note])
client.close()
client = QdrantClient(path=sys.argv[1])
read = client.scroll("notes", with_vectors=True)[0]
client.close()
database = sqlite3.connect(f"{sys.argv[1]}/collection/notes/storage.sqlite")
((stored,),) = database.execute("SELECT point FROM points")
database.close()
print(hashlib.sha256(stored).hexdigest(), read, sep="\t")
PYTHON
cat > "$folder/seen.py" <<'PYTHON'
import os
import subprocess
import sys

program, folder = sys.argv[1:]


def written(*salts):
    lines = set()
    for number, salt in enumerate(salts):
        command = [sys.executable, program, f"{folder}/{len(salts)}-{number}"]
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        lines.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    return [{line.split("\t")[part] for line in lines} for part in (0, 1)]


digests, points = written(*"12345678")
print("8 processes with salts of their own:", "several forms" if len(digests) > 1 else "1 form", "of the stored bytes")
print(f"read back: {len(points)} point")
print(f"the salt fixed, 3 processes: {len(written(*'111')[0])} form")
PYTHON
cat > "$folder/expected" <<'TEXT'
8 processes with salts of their own: several forms of the stored bytes
read back: 1 point
the salt fixed, 3 processes: 1 form
TEXT
"$folder/venv/bin/python" "$folder/seen.py" "$folder/write.py" "$folder" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
