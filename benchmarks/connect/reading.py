"""What does reading a memory system cost: seconds beside a plain loop over the same rows, and peak memory.

    MEMAUDIT_AGENTS=build/agents python -m benchmarks.connect.reading [--records 100000]

Rows are written in bulk into what the system's own client made. The plain loop is a `SELECT` of the columns that are
read; for Qdrant a scroll of its client, with the opening, which loads all points; for Lance a scan into Python values;
for Markdown a read of the files. Each pass is a process of its own; both ways take turns, and the shortest of three
counts. Imports of modules are not in the time, and are in the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.connect.systems import FOLDERS, SYSTEMS, Note, Place, is_installed, releases, server
from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile

if TYPE_CHECKING:
    from benchmarks.connect.systems import System

MAX_RATIO, MAX_PEAK_MB, PASSES, OWNERS = 1.3, 300, 3, 20

PROGRAM = """
import json, resource, sys, time
place, count, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
{setup}
began = time.perf_counter()
{body}
took = time.perf_counter() - began
assert found == count, (found, count)
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
OURS = """
from memory_audit.jobs.connect.address import parse_address
source = parse_address(place, options).open()
""", "found = sum(1 for _ in source.records())"  # fmt: skip
SELECT = """
import psycopg
connection = psycopg.connect(place.partition(":")[2])
cursor = connection.cursor(name="plain")
cursor.itersize = 500
"""
PLAIN = {
    "mem0 over Qdrant": ("from qdrant_client import QdrantClient", """
client, at, found = QdrantClient(path=place.partition(":")[2]), None, 0
while True:
    points, at = client.scroll("mem0", limit=1000, offset=at, with_payload=True)
    found += len(points)
    if at is None:
        break
"""),
    "LangGraph in SQLite": ("import sqlite3; connection = sqlite3.connect(place.partition(':')[2])", """
found = sum(1 for _ in connection.execute("SELECT prefix, key, value, created_at FROM store ORDER BY 1, 2, 3"))
"""),
    "LangGraph in PostgreSQL": (SELECT, """
cursor.execute("SELECT prefix, key, value::text, created_at FROM store ORDER BY 1, 2")
found = sum(1 for _ in cursor)
"""),
    "PostgreSQL": (SELECT, """
cursor.execute("SELECT id, content, user_id, made FROM memories ORDER BY id")
found = sum(1 for _ in cursor)
"""),
    "LanceDB": ("import lance; table = lance.dataset(place.partition(':')[2] + '/memories.lance')", """
batches = table.scanner(columns=["id", "text", "user_id"], batch_size=1024, scan_in_order=True).to_batches()
found = sum(len(batch.to_pylist()) for batch in batches)
"""),
    "Markdown": ("from pathlib import Path", """
files = sorted(Path(place.partition(":")[2]).rglob("*.md"))
found = sum(len(file.read_text().strip().split("\\n\\n")) for file in files)
"""),
}  # fmt: skip
FILL_QDRANT = """
import base64, pickle, sqlite3, sys, uuid
from qdrant_client.http.models import PointStruct
connection, count = sqlite3.connect(sys.argv[1] + "/collection/mem0/storage.sqlite"), int(sys.argv[2])
first = pickle.loads(connection.execute("SELECT point FROM points").fetchone()[0])
def rows():
    for number in range(1, count):
        name = str(uuid.UUID(int=number))
        text = f"Parcel {number} was handed over at the desk. " * 4
        payload = {**first.payload, "data": text, "user_id": f"owner{number % 20:02}"}
        point = PointStruct(id=name, vector=first.vector, payload=payload)
        yield base64.b64encode(pickle.dumps(name, protocol=4)).decode(), pickle.dumps(point, protocol=4)
connection.executemany("INSERT INTO points VALUES (?, ?)", rows())
connection.commit()
"""
FILL_SQLITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/agent.db")
with connection:
    connection.execute('''WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
        INSERT INTO store (prefix, key, value, created_at, updated_at)
        SELECT printf('users.owner%02d', i % 20), 'r' || i,
        json_object('text', printf('Parcel %d was handed over at the desk.', i)), '2026-11-01 12:00:00',
        '2026-11-01 12:00:00' FROM n''', (int(sys.argv[2]),))
"""
FILL_SQL = {
    "PostgreSQL": (
        "INSERT INTO memories SELECT 'r' || i, repeat('Parcel was handed over at the desk. ', 4) || i,"
        " 'owner' || i %% 20, now() FROM generate_series(1, %s) i"
    ),
    "LangGraph in PostgreSQL": (
        "INSERT INTO store (prefix, key, value) SELECT 'users.owner' || i %% 20, 'r' || i,"
        " jsonb_build_object('text', repeat('Parcel was handed over at the desk. ', 4) || i)"
        " FROM generate_series(1, %s) i"
    ),
}


def python(program: str, *words: str, agents: bool = False) -> str:
    """Run a program, with the packages of agents where it needs their clients; return what it prints."""
    path = os.pathsep.join([*(FOLDERS if agents else []), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout


def fill(name: str, system: System, place: Place, count: int) -> None:
    """Have a system's client make what it needs with a memory; add others in bulk."""
    first = [Note(owner="owner00", name="r0", text="Parcel 0 was handed over at the desk.")]
    if name in {"LanceDB", "Markdown"}:
        first += [
            Note(owner=f"owner{n % OWNERS:02}", name=f"r{n}", text=f"{n}: " + "Parcel was handed over. " * 6)
            for n in range(1, count)
        ]
    system.write(place, first, [])
    if name in FILL_SQL and place.url:
        with psycopg.connect(place.url) as connection:
            connection.execute(FILL_SQL[name], (count - 1,))
    elif name == "mem0 over Qdrant":
        python(FILL_QDRANT, str(place.folder), str(count), agents=True)
    elif name == "LangGraph in SQLite":
        python(FILL_SQLITE, str(place.folder), str(count))


def measure(name: str, system: System, place: Place, count: int) -> dict[str, Any]:
    """Read by both ways in turns."""
    words = system.address(place), str(count), json.dumps(dict(system.options))
    ours, plain = [], []
    for _ in range(PASSES):
        setup, body = PLAIN[name]
        plain.append(json.loads(python(PROGRAM.format(setup=setup, body=body), *words, agents="Qdrant" in name)))
        setup, body = OURS
        ours.append(json.loads(python(PROGRAM.format(setup=setup, body=body), *words)))
    took, bare = min(ours)[0], min(plain)[0]
    return {
        "plain_s": round(bare, 3), "read_s": round(took, 3), "ratio": round(took / bare, 2),
        "records_per_s": round(count / took), "peak_mb": round(max(peak for _, peak in ours)),
    }  # fmt: skip


def main() -> None:
    """Measure each system and write the result file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--only", choices=SYSTEMS, help="one system; nothing is written")
    given = options.parse_args()
    rows = []
    with server() as running:
        for name, kind in SYSTEMS.items():
            if given.only not in {None, name} or not is_installed(kind) or (kind.on_server and running is None):
                continue
            with tempfile.TemporaryDirectory() as folder:
                url = running.new() if running is not None and kind.on_server else ""
                place = Place(folder=Path(folder) / "agent", url=url)
                system = kind()
                fill(name, system, place, given.records)
                rows.append({"system": name, "releases": releases(kind), **measure(name, system, place, given.records)})
            print(rows[-1], flush=True)
    if given.only:
        return
    command = f"python -m benchmarks.connect.reading --records {given.records}"
    result = ResultFile("reading", command, {"records": given.records, "owners": OWNERS}, fresh=True)
    for row in rows:
        result.add_row(row)
    for row in rows:
        met = row["ratio"] <= MAX_RATIO
        result.add_bar(f"reading {row['system']} beside a plain loop", row["ratio"], "×", f"≤ {MAX_RATIO}", met)
    peak = max(row["peak_mb"] for row in rows)
    result.add_bar("peak memory of reading", peak, "MB", f"≤ {MAX_PEAK_MB}", peak <= MAX_PEAK_MB)


if __name__ == "__main__":
    run(main)
