"""A real local Qdrant, used as frameworks use it; runs where qdrant-client is installed.

Reads one JSON object from standard input: `folder`, and `calls`, a list of [method, arguments]; then further lists of
calls, until the input ends. Prints what each returned, as JSON. Vectors come from a fake embedder. `plain` takes an
SQLite without SECURE_DELETE, as most Pythons have.
"""

# ruff: noqa: T201 - a program of its own

from __future__ import annotations

import json
import sys


def fake_embed(text):
    """Embed a text by the letters in it."""
    return [float(text.count(letter)) + 0.1 for letter in "aeiostnr"]


def main():
    asked = json.loads(sys.stdin.readline())
    if asked.get("plain"):
        import pysqlite3  # noqa: PLC0415

        sys.modules["sqlite3"] = pysqlite3
    from qdrant_client import QdrantClient, models  # noqa: PLC0415

    client = QdrantClient(path=asked["folder"])

    def create(collection):
        size = len(fake_embed(""))
        client.create_collection(collection, models.VectorParams(size=size, distance=models.Distance.COSINE))

    def add(collection, points):
        client.upsert(collection, [
            models.PointStruct(id=name, vector=fake_embed(text), payload=payload) for name, text, payload in points
        ])  # fmt: skip

    def scroll(collection):
        return [[point.id, point.payload] for point in client.scroll(collection, limit=10_000)[0]]

    def search(collection, query):
        return [point.id for point in client.query_points(collection, fake_embed(query), limit=10_000).points]

    own = {
        "create": create, "add": add, "scroll": scroll, "search": search,
        "get": lambda collection, name: len(client.retrieve(collection, [name])),
        "delete": lambda collection, name: str(client.delete(collection, [name]).status),
    }  # fmt: skip

    def do(calls):
        print(json.dumps([own[name](**named) for name, named in calls]), flush=True)

    do(asked["calls"])
    for line in sys.stdin:
        do(json.loads(line))
    client.close()


if __name__ == "__main__":
    main()
