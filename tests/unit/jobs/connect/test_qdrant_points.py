"""Points of a local Qdrant are read without its client, and nothing in them is ever called."""

# ruff: noqa: ANN002, ANN003, ANN204 - what is handed on

from __future__ import annotations

import base64
import io
import os
import pickle
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import HeldError, UsageError
from memory_audit.jobs.connect import qdrant_points, sqlite_file


def pickled(name, payload):
    made = qdrant_points._PointStruct()
    made.state = {
        "__dict__": {"id": name, "vector": {"": [0.5]}, "payload": payload}, "__pydantic_extra__": None,
        "__pydantic_fields_set__": {"id", "vector", "payload"}, "__pydantic_private__": None,
    }  # fmt: skip
    written = io.BytesIO()
    qdrant_points._Writer(written, protocol=4).dump(made)
    return written.getvalue()


def key(name, protocol=4):
    return base64.b64encode(pickle.dumps(name, protocol=protocol)).decode()


def collection(path, *rows, table="points (id TEXT PRIMARY KEY, point BLOB)"):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE {table}")
        database.executemany("INSERT INTO points VALUES (?, ?)", rows)
        database.commit()
    return path


def read(path, **how):
    with sqlite_file.reading(path) as connection:
        return list(qdrant_points.points(connection, path, **how))


UPPER, LOWER = "3F2504E0-4F89-41D3-9A0C-0305E82C3301", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def test_the_last_row_of_a_point_is_served_in_whatever_spelling_the_others_are(tmp_path):
    path = collection(
        tmp_path / "storage.sqlite", (key(LOWER), pickled(LOWER, {"n": 1})), (key(7), pickled(7, {"n": 2})),
        (key(UPPER), pickled(UPPER, {"n": 3})), (key(7, protocol=5), pickled(7, {"n": 4})),
    )  # fmt: skip
    assert [(point.point_id, point.payload["n"]) for point in read(path)] == [(LOWER, 3), ("7", 4)]
    assert [point.payload["n"] for point in read(path, served=False)] == [1, 2, 3, 4]


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("blob", [pickle.dumps(Runs()), pickle.dumps([1]), b"\x80\x04", b"", pickle.dumps(io.BytesIO)])
def test_another_class_or_a_damaged_row_is_refused_by_name_and_not_run(tmp_path, monkeypatch, blob):
    monkeypatch.chdir(tmp_path)
    path = collection(tmp_path / "storage.sqlite", (key(1), blob))
    with pytest.raises(UsageError, match="row 1 is no point of a known qdrant-client"):
        read(path)
    assert not (tmp_path / "ran").exists()


def test_a_key_that_is_none_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = collection(tmp_path / "storage.sqlite", (base64.b64encode(pickle.dumps(Runs())).decode(), pickled(1, {})))
    with pytest.raises(UsageError, match="row 1 has a key"):
        read(path)
    assert not (tmp_path / "ran").exists()


def test_a_table_of_another_form_is_refused_by_name(tmp_path):
    path = collection(tmp_path / "storage.sqlite", table="points (id TEXT, blob BLOB)")
    with pytest.raises(UsageError, match=r"'blob'.*unknown qdrant-client"):
        read(path)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=5), PLAIN, max_size=3),
    after=st.dictionaries(st.text(max_size=5), PLAIN, max_size=3),
)
def test_a_payload_is_replaced_and_all_else_stays(before, after):
    raw = qdrant_points.replace_payload(pickled(LOWER, before), after)
    assert qdrant_points.replace_payload(raw, before) == qdrant_points.replace_payload(pickled(LOWER, before), before)
    point = qdrant_points._point(1, raw, "there")
    assert (point.point_id, point.payload) == (LOWER, after)
    struct = qdrant_points._Reader(io.BytesIO(raw)).load()
    assert struct.state["__dict__"]["vector"] == {"": [0.5]}
    assert struct.state["__pydantic_fields_set__"] == {"id", "vector", "payload"}


def test_a_folder_is_held_by_one(tmp_path):
    with qdrant_points.held(tmp_path), pytest.raises(HeldError, match="stop the agent"), qdrant_points.held(tmp_path):
        pass
    with qdrant_points.held(tmp_path):
        pass


@pytest.mark.parametrize(
    "meta", ['{"collections": {"../x": {}}}', '{"collections": 1}', "{", '{"collections": {"a/b": 0}}']
)
def test_a_collection_that_is_a_path_is_refused(tmp_path, meta):
    (tmp_path / "meta.json").write_text(meta)
    with pytest.raises(UsageError):
        qdrant_points.collections(tmp_path)


def test_an_agent_writes_while_its_points_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "PAGE", 2)
    path = collection(tmp_path / "storage.sqlite", *((key(n), pickled(n, {"n": n})) for n in range(6)))
    with sqlite_file.reading(path) as connection:
        found = qdrant_points.points(connection, path)
        seen = [next(found).payload["n"] for _ in range(3)]
        with closing(sqlite3.connect(path, timeout=0)) as agent, agent:
            agent.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (key(1), pickled(1, {"n": 11})))
            agent.execute("DELETE FROM points WHERE id = ?", (key(5),))
        seen += [point.payload["n"] for point in found]
    assert seen == [0, 1, 2, 3, 4, 11]
