"""A real LangGraph store and graph over one SQLite file, with a fake embedder; runs where LangGraph is installed.

Reads one JSON object from standard input: `folder`, and `calls`, a list of [method, arguments]; then further lists of
calls, until the input ends. Prints what each returned, as JSON. SQLite is one that loads extensions, without
SECURE_DELETE.
"""

# ruff: noqa: T201 - a program of its own

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypedDict

import pysqlite3

sys.modules["sqlite3"] = pysqlite3
from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.store.sqlite import SqliteStore  # noqa: E402


class State(TypedDict):
    """Of a thread."""

    said: str
    recalled: list[str]


def fake_embed(texts):
    """Embed texts by the letters in them."""
    return [[float(text.count(letter)) + 0.1 for letter in "aeio"] for text in texts]


def main():
    asked = json.loads(sys.stdin.readline())
    folder = Path(asked["folder"])
    folder.mkdir(exist_ok=True)

    def connect():  # each has its own: the two write at once, from threads
        connection = pysqlite3.connect(folder / "agent.db", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    store = SqliteStore(connect(), index={"dims": 4, "embed": fake_embed, "fields": ["text"]})
    saver = SqliteSaver(connect())
    store.setup()
    saver.setup()

    def recall(state: State, *, store):
        return {"recalled": [str(item.value) for item in store.search(("users",), query=state["said"], limit=50)]}

    graph = StateGraph(State)
    graph.add_node("recall", recall)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", END)
    compiled = graph.compile(checkpointer=saver, store=store)

    def say(thread, text):
        return compiled.invoke({"said": text}, {"configurable": {"thread_id": thread}})["recalled"]

    own = {
        "put": lambda namespace, key, value, **more: store.put(tuple(namespace), key, value, **more),
        "get": lambda namespace, key: getattr(store.get(tuple(namespace), key), "value", None),
        "search": lambda query=None: sorted(item.key for item in store.search((), query=query, limit=1000)),
        "say": say,
        "state": lambda thread: compiled.get_state({"configurable": {"thread_id": thread}}).values,
    }  # fmt: skip

    def do(calls):
        print(json.dumps([own[name](**named) for name, named in calls]), flush=True)

    do(asked["calls"])
    for line in sys.stdin:
        do(json.loads(line))
    store.conn.close()
    saver.conn.close()


if __name__ == "__main__":
    main()
