"""A help desk's agent: real mem0 or LangGraph, a model behind an OpenAI-compatible address, OpenTelemetry traces.

Reads one JSON object from standard input and answers its questions, each with the five memories that its memory system
finds. `remember` is what customers said before: each text goes into memory by the system's own call. Prints one JSON
object: for each question its trace id and its answer. A program of its own, run where the memory system is installed.
"""

# ruff: noqa: ANN204, PLC0415, T201

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

K = 5
OWNER = "desk"


class Mem0Memory:
    """mem0 over a Qdrant folder; `infer=False` keeps what was said as it was said."""

    def __init__(self, folder, embed):
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=tempfile.mkdtemp())
        from mem0 import Memory
        from mem0.utils import factory

        class Embedder:
            def embed(self, text, _action=None):
                return embed([text])[0]

            def embed_batch(self, texts, _action=None):
                return embed(texts)

        factory.EmbedderFactory.create = lambda *_, **__: Embedder()
        factory.LlmFactory.create = lambda *_, **__: None  # asked by nothing here: texts are kept as they are
        store = {"path": folder, "on_disk": True, "embedding_model_dims": len(embed(["a"])[0])}
        self.memory = Memory.from_config(
            {"vector_store": {"provider": "qdrant", "config": store}, "history_db_path": f"{folder}/history.db"}
        )

    def remember(self, text):
        self.memory.add([{"role": "user", "content": text}], agent_id=OWNER, infer=False)

    def recall(self, question):
        found = self.memory.search(question, filters={"agent_id": OWNER}, top_k=K)["results"]
        return [(item["id"], item["memory"]) for item in found]

    def close(self):
        self.memory.close()


class LangGraphMemory:
    """LangGraph's SqliteStore, with vectors, in an SQLite that loads extensions."""

    def __init__(self, folder, embed):
        import pysqlite3

        sys.modules["sqlite3"] = pysqlite3
        from langgraph.store.sqlite import SqliteStore

        Path(folder).mkdir(exist_ok=True)
        self.connection = pysqlite3.connect(f"{folder}/agent.db", check_same_thread=False, isolation_level=None)
        index = {"dims": len(embed(["a"])[0]), "embed": embed, "fields": ["text"]}
        self.store = SqliteStore(self.connection, index=index)
        self.store.setup()
        self.said = len(self.store.search((OWNER,), limit=10_000))

    def remember(self, text):
        self.store.put((OWNER,), f"case-{self.said}", {"text": text})
        self.said += 1

    def recall(self, question):
        return [
            (f"{OWNER}/{item.key}", item.value["text"]) for item in self.store.search((OWNER,), query=question, limit=K)
        ]

    def close(self):
        self.connection.close()


MEMORIES: dict[str, Any] = {"mem0": Mem0Memory, "langgraph": LangGraphMemory}


def sentence_embedder(folder):
    """Return a function that embeds texts with the model of a folder."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    return lambda texts: model.encode(list(texts), normalize_embeddings=True).tolist()


def main():
    asked = json.load(sys.stdin)
    memory = MEMORIES[asked["system"]](asked["folder"], sentence_embedder(asked["embedder"]))
    for text in asked["remember"]:
        memory.remember(text)
    from openai import OpenAI
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    model = OpenAI(base_url=asked["url"], api_key="none")
    answers = {}
    with Path(asked["traces"]).open("a", encoding="utf-8") as traces:
        provider = TracerProvider()
        exporter = ConsoleSpanExporter(out=traces, formatter=lambda span: span.to_json(indent=None) + "\n")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("desk")
        for question in asked["questions"]:
            with tracer.start_as_current_span("ask") as turn:
                turn.set_attributes({"openinference.span.kind": "AGENT", "input.value": question})
                with tracer.start_as_current_span("recall") as span:
                    found = memory.recall(question)
                    span.set_attribute("openinference.span.kind", "RETRIEVER")
                    span.set_attribute("input.value", question)
                    for place, (name, text) in enumerate(found):
                        span.set_attribute(f"retrieval.documents.{place}.document.id", name)
                        span.set_attribute(f"retrieval.documents.{place}.document.content", text)
                notes = "".join(asked["item"].replace("{response}", text) for _, text in found)
                system = asked["template"].replace("{memories}", notes)
                said = model.chat.completions.create(
                    model=asked["model"], temperature=0, max_tokens=asked["max_tokens"],
                    messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
                )  # fmt: skip
                answer = said.choices[0].message.content
                turn.set_attribute("output.value", answer)
                answers[question] = {"trace_id": f"{turn.get_span_context().trace_id:032x}", "answer": answer}
        provider.shutdown()
    memory.close()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
