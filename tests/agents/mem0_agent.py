"""A real mem0 over a local vector store, with a fake embedder and a fake extractor; runs where mem0ai is installed.

Reads one JSON object from standard input: `folder`, and `calls`, a list of [method, arguments]. Prints what each
returned, as JSON. With `stay` it then waits for the end of input, with the store open. `plain` takes an SQLite without
SECURE_DELETE, as most Pythons have. `over` names the store: `qdrant`, unless it is said, or `chroma`.
"""

# ruff: noqa: ANN003, ANN204, T201 - a program of its own

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import uuid

DIMENSIONS = 16


class FakeEmbedder:
    """A vector of a text's hash."""

    def embed(self, text, _action=None):
        return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]

    def embed_batch(self, texts, _action=None):
        return [self.embed(text) for text in texts]


class FakeExtractor:
    """Extracts what stands in angle brackets in the new messages; it writes down what it is shown."""

    def __init__(self, shown):
        self.shown = shown

    def generate_response(self, messages, **_named):
        prompt = messages[-1]["content"]
        self.shown.append(prompt)
        facts = [part.split(">")[0] for part in prompt.rpartition("New Messages")[2].split("<")[1:]]
        return json.dumps({"memory": [{"id": "0", "text": fact, "attributed_to": "user"} for fact in facts]})


def main():
    asked = json.loads(sys.stdin.readline())
    if asked.get("plain"):
        import pysqlite3  # noqa: PLC0415

        sys.modules["sqlite3"] = pysqlite3
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=tempfile.mkdtemp())
    from mem0 import Memory  # noqa: PLC0415
    from mem0.utils import factory  # noqa: PLC0415

    shown = []
    factory.EmbedderFactory.create = lambda *_, **__: FakeEmbedder()
    factory.LlmFactory.create = lambda *_, **__: FakeExtractor(shown)
    folder = asked["folder"]
    over = asked.get("over", "qdrant")
    store = {"path": folder, "collection_name": "mem0"}
    if over == "qdrant":
        store |= {"on_disk": True, "embedding_model_dims": DIMENSIONS}
    memory = Memory.from_config({
        "vector_store": {"provider": over, "config": store}, "history_db_path": f"{folder}/history.db",
    })  # fmt: skip

    def link(entity, ids):
        memory.entity_store.insert(
            ids=[str(uuid.uuid4())],
            vectors=[FakeEmbedder().embed(entity)],
            payloads=[{"data": entity, "entity_type": "PROPER", "linked_memory_ids": ids, "user_id": "bob"}],
        )

    def scrolled():
        return memory.entity_store.client.scroll(memory.entity_store.collection_name, limit=1000)[0]

    def entities():
        (rows,) = memory.entity_store.list(top_k=1000) if over == "chroma" else (scrolled(),)
        return sorted((row.payload["data"], row.payload["linked_memory_ids"]) for row in rows)

    own = {
        "link": link, "entities": entities, "shown": lambda: shown,
        "messages": memory.db.get_last_messages,
    }  # fmt: skip

    def do(calls):
        print(
            json.dumps([(own[name] if name in own else getattr(memory, name))(**named) for name, named in calls]),
            flush=True,
        )

    do(asked["calls"])
    for line in sys.stdin:
        do(json.loads(line))
    memory.close()


if __name__ == "__main__":
    main()
