"""A real LangGraph store and graph over SQLite or PostgreSQL, with a fake embedder; runs where LangGraph is installed.

Reads one JSON object from standard input: `folder`, or the URL of a database, and `calls`, a list of [method,
arguments]; then further lists of calls, until the input ends. Prints what each returned, as JSON. SQLite is one that
loads extensions, without SECURE_DELETE.
"""

# ruff: noqa: T201 - a program of its own

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    """Of a thread."""

    said: str
    recalled: list[str]


def fake_embed(texts):
    """Embed texts by the letters in them."""
    return [[float(text.count(letter)) + 0.1 for letter in "aeio"] for text in texts]


INDEX = {"dims": 4, "embed": fake_embed, "fields": ["text"]}


def in_file(place):
    import pysqlite3  # noqa: PLC0415 - of one kind

    sys.modules["sqlite3"] = pysqlite3
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415
    from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415

    folder = Path(place)
    folder.mkdir(exist_ok=True)

    def connect():  # each has its own: the two write at once, from threads
        connection = pysqlite3.connect(folder / "agent.db", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    return SqliteStore(connect(), index=INDEX), SqliteSaver(connect())


def in_postgres(url):
    import psycopg  # noqa: PLC0415 - of one kind
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
    from langgraph.store.postgres import PostgresStore  # noqa: PLC0415

    def connect():
        return psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row)

    return PostgresStore(connect(), index=INDEX), PostgresSaver(connect())


def main():
    asked = json.loads(sys.stdin.readline())
    store, saver = (in_postgres if "://" in asked["folder"] else in_file)(asked["folder"])
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
        "items": lambda: [item.dict() for item in store.search((), limit=100_000)],
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
