"""A real table of LanceDB with indexes of texts and vectors; runs where LanceDB is installed.

Reads one JSON object from standard input: `folder`, and `calls`, a list of [method, arguments]; then further lists of
calls, until the input ends. Prints what each returned, as JSON. Vectors come from a fake embedder.
"""

# ruff: noqa: T201 - a program of its own

from __future__ import annotations

import json
import sys

import lancedb

TABLE = "memories"


def fake_embed(text):
    """Embed a text by the letters in it."""
    return [float(text.count(letter)) + 0.1 for letter in "aeiostnr"]


def main():
    asked = json.loads(sys.stdin.readline())
    connection = lancedb.connect(asked["folder"])
    opened = {}

    def table():
        opened.setdefault(TABLE, connection.open_table(TABLE))
        return opened[TABLE]

    def embedded(rows):
        return [{**row, "vector": fake_embed(row["text"])} for row in rows]

    def index():
        table().create_scalar_index("text", index_type="BTREE", name="btree")
        table().create_scalar_index("user_id", index_type="BITMAP")
        table().create_index(metric="l2", vector_column_name="vector", index_type="IVF_FLAT", num_partitions=1)

    def ids(rows):
        return sorted(row["id"] for row in rows)

    def held(names):
        """Count rows with one of the ids, in all versions."""
        found = 0
        for version in table().list_versions():
            table().checkout(version["version"])
            found += len(set(names).intersection(ids(table().search().select(["id"]).limit(100_000).to_list())))
        table().checkout_latest()
        return found

    own = {
        "create": lambda rows: opened.update({TABLE: connection.create_table(TABLE, embedded(rows))}),
        "add": lambda rows: str(table().add(embedded(rows))),
        "edit": lambda name, text: str(table().update(where=f"id = '{name}'", values={"text": text})),
        "index": index,
        "words": lambda: table().create_fts_index("text", replace=True),
        "tag": lambda name: table().tags.create(name, table().version),
        "untag": lambda tag: table().tags.delete(tag),  # noqa: PLW0108 - opened when it is called
        "get": lambda name: table().search().where("id = '{}'".format(name.replace("'", "''"))).to_list(),
        "ids": lambda: ids(table().search().select(["id"]).limit(100_000).to_list()),
        "rows": lambda: table().search().limit(100_000).to_list(),
        "held": held,
        "search": lambda query: ids(table().search(fake_embed(query)).limit(1_000).to_list()),
        "latest": lambda: opened[TABLE].checkout_latest(),  # noqa: PLW0108 - likewise
        "versions": lambda: len(table().list_versions()),
        "indexes": lambda: sorted((one.name, one.num_indexed_rows) for one in table().list_indices()),
    }  # fmt: skip

    def do(calls):
        print(json.dumps([own[name](**named) for name, named in calls]), flush=True)

    do(asked["calls"])
    for line in sys.stdin:
        do(json.loads(line))


if __name__ == "__main__":
    main()
