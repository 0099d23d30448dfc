"""A real persistent Chroma; runs where chromadb is installed.

Reads one JSON object from standard input: `folder`, and `calls`, a list of [method, arguments]; then further lists of
calls, until the input ends. Prints what each returned, as JSON. Vectors come from a fake embedder.
"""

# ruff: noqa: T201 - a program of its own

from __future__ import annotations

import json
import sys


def fake_embed(text):
    """Embed a text by the letters in it."""
    return [float(text.count(letter)) + 0.1 for letter in "aeiostnrdlcumpgb"]


def main():
    import chromadb  # noqa: PLC0415 - a test reads `fake_embed` without it

    asked = json.loads(sys.stdin.readline())
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(asked["folder"], settings=settings)

    def opened(name, database=None, sync=1_000):
        of = client
        if database:
            chromadb.AdminClient(client._system.settings).create_database(database)
            of = chromadb.PersistentClient(asked["folder"], settings=settings, database=database)
        configured = {"hnsw": {"sync_threshold": sync, "batch_size": min(100, sync)}}
        return of.get_or_create_collection(name, embedding_function=None, configuration=configured)

    def write(method, name, rows, database=None, sync=1_000):
        ids, texts, metadata = zip(*rows, strict=True)
        collection = opened(name, database, sync)
        for start in range(0, len(ids), 2):
            part = slice(start, start + 2)
            getattr(collection, method)(
                ids=list(ids[part]), documents=list(texts[part]), metadatas=list(metadata[part]),
                embeddings=[fake_embed(text) for text in texts[part]],
            )  # fmt: skip

    def everything(name):
        found = opened(name).get(include=["documents", "metadatas", "embeddings"])
        rows = zip(found["ids"], found["documents"], found["metadatas"], found["embeddings"].tolist(), strict=True)
        return sorted(rows)

    own = {
        "write": write, "everything": everything,
        "bare": lambda name, ids, metadata: opened(name).add(ids, [fake_embed(n) for n in ids], metadata),
        "delete": lambda name, ids: opened(name).delete(ids) and None,
        "get": lambda name, ids: opened(name).get(ids)["ids"],
        "search": lambda name, query: opened(name).query([fake_embed(query)], n_results=1_000)["ids"][0],
        "words": lambda name, words: opened(name).get(where_document={"$contains": words})["ids"],
        "drop": client.delete_collection,
    }  # fmt: skip

    def do(calls):
        print(json.dumps([own[method](**named) for method, named in calls]), flush=True)

    do(asked["calls"])
    for line in sys.stdin:
        do(json.loads(line))


if __name__ == "__main__":
    main()
