"""What a recorded input or output says, in the shapes that frameworks use."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import MAX_TEXT_BYTES
from memory_audit.traces.read import read_record
from memory_audit.traces.records import Document, Reading, as_id, time_us
from memory_audit.traces.values import as_document, documents_in, said

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
MEMBERS = st.sampled_from([
    "resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords", "attributes", "key", "value",
    "traceId", "spanId", "trace_id", "span_id", "id", "ids", "context", "events", "data", "type", "input", "output",
    "metadata", "start_time", "name", "arrayValue", "kvlistValue", "values", "stringValue", "timestamp", "result",
    "annotator_kind",
])  # fmt: skip
HOSTILE = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(["0" * 32, "1" * 16, "RETRIEVER"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize(
    "value",
    [
        "what now?",
        {"input": "what now?"},
        {"question": "what now?", "notes": ["a", "b"]},
        {"query_bundle": {"query_str": "what now?", "embedding": None}},
        [{"role": "system", "content": "S"}, {"role": "user", "content": "what now?"}],
        {"messages": [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"},
                      {"role": "user", "content": [{"type": "text", "text": "what now?"}, {"type": "image_url"}]}]},
        [{"role": "user", "parts": [{"type": "text", "content": "what now?"}]}],
        {"messages": [[{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "SystemMessage"],
                        "kwargs": {"content": "S", "type": "system"}},
                       {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
                        "kwargs": {"content": "what now?", "type": "human"}}]]},
    ],
)  # fmt: skip
def test_what_the_user_asked_is_found(value):
    assert said(value, "user") == "what now?"
    assert said(value if isinstance(value, str) else json.dumps(value), "user") == "what now?"


@pytest.mark.parametrize(
    "value",
    [
        {"answer": "mail it", "sources": []},
        {"type": "ai", "data": {"content": "mail it", "type": "ai"}},
        {"generations": [[{"text": "mail it", "message": {"kwargs": {"content": "mail it"}}}]], "llm_output": None},
        {"choices": [{"message": {"role": "assistant", "content": "mail it"}}]},
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": "mail it"}],
        [{"type": "ai", "content": "mail it"}, {"type": "ai", "content": "", "tool_calls": [{"name": "close"}]}],
    ],
)
def test_what_the_assistant_answered_is_found(value):
    assert said(json.dumps(value), "assistant") == "mail it"


def test_a_value_of_no_known_shape_stands_for_itself():
    assert said('{"a": 1, "b": [2]}', "user") == '{"a": 1, "b": [2]}'
    assert said('[{"role": "tool", "content": "x"}]', "assistant") == '[{"role": "tool", "content": "x"}]'


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ("a text", Document(text="a text")),
        ({"id": "m-1", "memory": "a text"}, Document(entry_id="m-1", text="a text")),
        ({"id": 7, "document": "a text"}, Document(entry_id="7", text="a text")),
        ({"page_content": "a text", "metadata": {"_id": "m-1"}}, Document(keys=("m-1",), text="a text")),
        ({"id": ["langchain", "Document"], "kwargs": {"page_content": "a text", "id": "m-1"}},
         Document(entry_id="m-1", text="a text")),
        ([{"page_content": "a text"}, 0.7], Document(text="a text")),
        ({"node": {"id_": "m-1", "text": "a text"}, "score": 1}, Document(entry_id="m-1", text="a text")),
        ({"namespace": ["acme"], "key": "m-1", "value": {"text": "a text"}}, Document(entry_id="m-1", text="a text")),
        ({"document.id": "m-1", "document.content": "a text"}, Document(entry_id="m-1", text="a text")),
        ({"id": True, "score": 1}, Document()),
        (None, Document()),
    ],
)  # fmt: skip
def test_a_document_is_read_whatever_its_members_are_called(value, document):
    assert as_document(value) == document


def test_a_result_holds_its_documents_in_one_of_many_members():
    assert [d.text for d in documents_in('{"results": [{"memory": "a"}, {"memory": "b"}]}')] == ["a", "b"]
    assert documents_in('{"documents": []}') == []
    assert documents_in("nothing found") is None
    assert documents_in('{"documents": [') is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"ids": [["a", "b"], ["c"]], "documents": [["A", "B"], ["C"]]}, [("a", "A"), ("b", "B")]),
        ({"ids": ["a", "b"], "documents": ["A", None]}, [("a", "A"), ("b", "")]),
        ({"ids": [["a"]], "documents": None}, [("a", "")]),
        ({"ids": [[]], "documents": [[]]}, []),
        ({"ids": []}, []),
    ],
)
def test_a_result_of_chroma_is_read_by_columns(value, found):
    assert [(document.entry_id, document.text) for document in documents_in(value)] == found


def test_no_text_is_longer_than_what_shows_that_it_is_too_long():
    assert len(as_document("x" * 10**6).text) == MAX_TEXT_BYTES + 1
    assert len(said("x" * 10**6, "user")) == MAX_TEXT_BYTES + 1


def test_half_a_surrogate_pair_and_nan_are_read():
    assert said('{"input": "cut \\ud83d"}', "user") == "cut ?"
    assert documents_in('[{"id": "m-1", "score": NaN}]') == [Document(entry_id="m-1")]


def test_deep_nesting_ends():
    deep = "[" * 100_000
    assert said(deep, "user").startswith("[[")
    assert documents_in(deep + "]" * 100_000) is None


@pytest.mark.parametrize(
    ("given_as", "found"),
    [
        ("0xABCDEF0123456789abcdef0123456789", "abcdef0123456789abcdef0123456789"),
        ("q83vASNFZ4mrze8BI0VniQ==", "abcdef0123456789abcdef0123456789"),
        ("my trace", "my trace"), ("x" * 200, ""), (7, ""), (None, ""),
    ],
)  # fmt: skip
def test_ids_of_all_encodings_are_one(given_as, found):
    assert as_id(given_as) == found


@pytest.mark.parametrize("value", ["1795836118657678547", 1795836118657678547, "2026-11-28T03:21:58.657678Z",
                                   "2026-11-28 03:21:58.657678", "2026-11-28T04:21:58.657678+01:00"])  # fmt: skip
def test_times_of_all_tools_are_one(value):
    assert time_us(value) == 1795836118657678


@pytest.mark.parametrize("value", ["", "soon", -1, True, None, 10**40, "9" * 30, "9999-12-31T23:59:59-12:00", 1.5])
def test_what_is_no_time_is_none(value):
    assert time_us(value) == 0


@given(JSON)
def test_no_json_value_is_too_strange(value):
    said(value, "user")
    said(json.dumps(value), "assistant")
    documents_in(value)
    documents_in(json.dumps(value))


@given(HOSTILE)
def test_no_record_is_too_strange(value):
    for item in read_record(value, Reading(tenant_from="type", retrievers=("x",))):
        assert item is not None
