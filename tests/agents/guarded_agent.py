"""A real memory system behind its guard, with fake models; runs where the system is installed.

Reads one JSON object from standard input: `system`, `folder` of the memory, `store` and `policy` of the guard, the text
`harmful`, `tenant` of which it was removed, and `harmless`, how many such writes to make. Prints what happened.
"""

# ruff: noqa: T201, PLC0415, ANN003 - a program of its own

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import memory_audit
from memory_audit import GuardedStore, GuardSettings, WriteRefusedError, load_policy
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER, NOW

DIMENSIONS = 4
PAGE = Path(__file__).parents[2] / "docs/howto/guard-in-memory-systems.md"


def as_documented(system, guarded, **objects):
    """Run what the documentation shows for a system; return what its agent is given."""
    given = []
    memory_audit.open_guard = lambda *_: nullcontext(guarded)  # type: ignore[assignment]
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if f"guard_{system}(" in block)
    exec(code, {**objects, "run_agent": given.append})  # noqa: S102 - our own page
    return given[0]


def vector(text):
    return [float(text.count(letter)) + 0.1 for letter in "aeio"]


def tried(call, **named):
    """Make a call; return what its refusal says, or None."""
    try:
        call(**named)
    except WriteRefusedError as error:
        return {"refused": error.refused, "message": str(error)}
    return None


async def tried_later(call, **named):
    try:
        await call(**named)
    except WriteRefusedError as error:
        return {"refused": error.refused, "message": str(error)}
    return None


def of_mem0(folder, guarded, asked):
    sys.path.insert(0, str(Path(__file__).parent))
    from mem0_agent import FakeEmbedder, FakeExtractor

    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=tempfile.mkdtemp())
    from mem0 import AsyncMemory, Memory
    from mem0.utils import factory

    shown = []
    factory.EmbedderFactory.create = lambda *_, **__: FakeEmbedder()
    factory.LlmFactory.create = lambda *_, **__: FakeExtractor(shown)
    config = {"path": folder, "on_disk": True, "embedding_model_dims": 16, "collection_name": "mem0"}
    memory = Memory.from_config({
        "vector_store": {"provider": "qdrant", "config": config}, "history_db_path": f"{folder}/history.db",
    })  # fmt: skip
    if guarded is not None:
        memory = as_documented("mem0", guarded, memory=memory)
    text, bob = asked["harmful"], {"user_id": "bob"}

    def texts(**filters):
        return sorted(one["memory"] for one in memory.get_all(filters=filters or bob, top_k=1_000)["results"])

    def update():
        first = memory.get_all(filters=bob, top_k=1)["results"][0]["id"]
        return tried(memory.update, memory_id=first, text=text)

    async def later():
        there = {**config, "path": f"{folder}-later"}
        other = AsyncMemory.from_config({
            "vector_store": {"provider": "qdrant", "config": there}, "history_db_path": f"{folder}-later/history.db",
        })  # fmt: skip
        other = as_documented("mem0", guarded, memory=other)
        said = await tried_later(other.add, messages=f"note <{text}> and <tea is at five>", **bob)
        kept = (await other.get_all(filters=bob))["results"]
        return said and {**said, "kept": [one["memory"] for one in kept]}

    def write(number):
        memory.add(messages=f"the parcel {number} came", infer=False, **bob)

    def reset():
        memory.reset()
        return tried(memory.add, messages=text, infer=False, **bob)

    return write, {
        "verbatim": lambda: tried(memory.add, messages=text, infer=False, **bob),
        "extracted": lambda: tried(memory.add, messages=f"note <{text}>", **bob),
        "mixed": lambda: tried(memory.add, messages=f"note <{text}> and <tea is at five o'clock>", **bob),
        "update": update,
        "other tenant": lambda: tried(memory.add, messages=text, infer=False, user_id="nobody-known"),
        "no owner": lambda: tried(memory.vector_store.insert, vectors=[[0.1] * 16], payloads=[{"data": "x"}]),
        "messages": lambda: memory.db.get_last_messages("user_id=bob", limit=100),
        "texts": texts,
        "async": lambda: asyncio.run(later()),
        "reset": reset,
    }, memory.close  # fmt: skip


def of_langgraph(folder, guarded, asked):
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
    from langgraph.graph import END, START, StateGraph
    from langgraph.store.base import PutOp, SearchOp
    from langgraph.store.memory import InMemoryStore
    from langgraph.store.sqlite import SqliteStore

    Path(folder).mkdir(exist_ok=True)
    connection = pysqlite3.connect(f"{folder}/agent.db", check_same_thread=False, isolation_level=None)
    inner = SqliteStore(
        connection, index={"dims": DIMENSIONS, "embed": lambda texts: [vector(text) for text in texts]},
        ttl={"default_ttl": 60},
    )  # fmt: skip
    inner.setup()
    store, memory = inner, InMemoryStore()
    if guarded is not None:
        store, memory = (as_documented("langgraph", guarded, store=one) for one in (inner, memory))
    text, mine = asked["harmful"], tuple(asked["tenant"].partition("=")[2].split("."))

    def node(_state, *, store):
        store.put(mine, "from a graph", {"text": text})
        return {}

    graph = StateGraph(dict)
    graph.add_node("write", node)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    batch = [PutOp(mine, "m1", {"text": text}), PutOp(mine, "m2", {"text": "tea is at five"}), SearchOp(mine)]
    return (
        lambda number: store.put(mine, f"h{number}", {"text": f"the parcel {number} came"}, ttl=5),
        {
            "verbatim": lambda: tried(store.put, namespace=mine, key="v", value={"text": text}),
            "mixed": lambda: tried(store.batch, ops=batch),
            "async": lambda: asyncio.run(tried_later(memory.aput, namespace=mine, key="a", value={"text": text})),
            "graph": lambda: tried(graph.compile(store=store).invoke, input={}),
            "delete": lambda: tried(store.delete, namespace=mine, key="none"),
            "sweep": lambda: store.sweep_ttl() >= 0,
            "texts": lambda: sorted(item.value["text"] for item in inner.search((), limit=1_000)),
        },
        connection.close,
    )


def of_chroma(folder, guarded, asked):
    import chromadb

    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(folder, settings)
    notes = client.create_collection("notes", embedding_function=None)
    notes.add(ids=["old"], documents=["a note of old"], embeddings=[vector("")], metadatas=[{"user_id": "bob"}])
    if guarded is not None:
        as_documented("chroma", guarded, client=client)
    text, mine = asked["harmful"], {"user_id": "bob"}

    def one(call, name):
        return tried(call, ids=[name], documents=[text], embeddings=[vector(text)], metadatas=[mine])

    second = chromadb.PersistentClient(folder, settings).get_collection("notes", embedding_function=None)
    return lambda number: notes.add(
        ids=[f"h{number}"], documents=[f"the parcel {number} came"], embeddings=[vector(str(number))], metadatas=[mine]
    ), {
        "verbatim": lambda: one(notes.add, "a"), "upsert": lambda: one(notes.upsert, "b"),
        "update": lambda: one(notes.update, "old"), "second client": lambda: one(second.add, "c"),
        "metadata": lambda: tried(notes.update, ids=["old"], metadatas=[{**mine, "note": text}]),
        "mixed": lambda: tried(
            notes.add, ids=["m1", "m2"], documents=[text, "tea is at five"], embeddings=[vector("a"), vector("e")],
            metadatas=[mine, mine],
        ),
        "texts": lambda: sorted(notes.get()["documents"]),
    }, lambda: None  # fmt: skip


def of_qdrant(folder, guarded, asked):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=folder)
    client.create_collection("old", vectors_config=models.VectorParams(size=4, distance="Cosine"))
    if guarded is not None:
        as_documented("qdrant", guarded, client=client)
    client.create_collection("notes", vectors_config=models.VectorParams(size=4, distance="Cosine"))
    bad = {"user_id": "bob", "data": asked["harmful"]}

    def point(number, payload):
        return models.PointStruct(id=number, vector=vector(str(number)), payload=payload)

    def fine(number, first=0):
        return point(first + number, {"user_id": "bob", "data": f"the parcel {number} came"})

    operation = models.UpsertOperation(upsert=models.PointsList(points=[point(5, bad)]))
    overwritten = models.OverwritePayloadOperation(overwrite_payload=models.SetPayload(payload=bad, points=[1]))
    return lambda number: client.upsert("notes", [fine(number, 1_000)]), {
        "harmless": lambda: tried(client.upsert, collection_name="notes", points=[fine(1)]),
        "verbatim": lambda: tried(client.upsert, collection_name="notes", points=[point(2, bad)]),
        "before the guard": lambda: tried(client.upsert, collection_name="old", points=[point(2, bad)]),
        "upload": lambda: tried(client.upload_points, collection_name="notes", points=[point(3, bad)]),
        "columns": lambda: tried(
            client.upload_collection, collection_name="notes", vectors=[vector("a")], payload=[bad], ids=[4]
        ),
        "batch": lambda: tried(client.batch_update_points, collection_name="notes", update_operations=[operation]),
        "set": lambda: tried(client.set_payload, collection_name="notes", payload=bad, points=[1]),
        "overwrite": lambda: tried(client.overwrite_payload, collection_name="notes", payload=bad, points=[1]),
        "batched overwrite": lambda: tried(
            client.batch_update_points, collection_name="notes", update_operations=[overwritten]
        ),
        "mixed": lambda: tried(client.upsert, collection_name="notes", points=[point(6, bad), fine(7)]),
        "texts": lambda: sorted(one.payload["data"] for one in client.scroll("notes", limit=1_000)[0]),
    }, client.close  # fmt: skip


SYSTEMS = {"mem0": of_mem0, "langgraph": of_langgraph, "chroma": of_chroma, "qdrant": of_qdrant}


def main():
    asked = json.loads(sys.stdin.readline())
    guarded = None
    if asked.get("store"):
        guarded = GuardedStore(
            Path(asked["store"]), load_policy(Path(asked["policy"])), embed=EMBEDDER.embed, embedder=EMBEDDER.model_id,
            behaviours=BEHAVIOURS, settings=GuardSettings(mode="behaviour"), clock_ms=lambda: NOW + 10,
        )  # fmt: skip
    write, calls, close = SYSTEMS[asked["system"]](asked["folder"], guarded, asked)
    started, refused = time.perf_counter(), 0
    for number in range(asked["harmless"]):
        refused += tried(write, number=number) is not None
    took_s = time.perf_counter() - started
    happened = {name: call() for name, call in calls.items()}
    print(json.dumps({"harmless refused": refused, "harmless_s": took_s, **happened}))
    close()
    if guarded is not None:
        guarded.close()


if __name__ == "__main__":
    main()
