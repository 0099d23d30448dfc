"""What attributes of a span mean, and what is missing among them."""

import json

import pytest

from memory_audit.traces.conventions import read_attributes
from memory_audit.traces.records import Document, Reading, Span

PLAIN = Reading()
SPAN = Span(trace_id="t", span_id="s")


def retrieval(attributes, dropped=0, reading=PLAIN, name="search"):
    return read_attributes(SPAN, attributes, reading, name=name, dropped=dropped)


def flat(*numbers: int, **more: str):
    found = {"openinference.span.kind": "RETRIEVER", **more}
    for number in numbers:
        found[f"retrieval.documents.{number}.document.id"] = f"m-{number}"
        found[f"retrieval.documents.{number}.document.content"] = f"text {number}"
    return found


def test_documents_come_in_the_order_of_their_numbers():
    found = retrieval(flat(10, 2, 0, 1, *range(3, 10)))
    assert [document.entry_id for document in found.documents] == [f"m-{number}" for number in range(11)]
    assert found.lost == 0


@pytest.mark.parametrize(
    ("numbers", "dropped", "lost"),
    [((3, 4), 0, 3), ((0, 1, 4), 2, 2), ((0, 1), 5, 1), ((0, 1), 0, 0)],
    ids=["oldest gone", "a gap", "newest gone: only the count tells", "whole"],
)
def test_documents_that_are_gone_are_counted(numbers, dropped, lost):
    assert retrieval(flat(*numbers), dropped).lost == lost


def test_documents_that_one_attribute_has_whole_are_not_lost():
    whole = json.dumps({"documents": [{"id": f"m-{n}", "page_content": f"text {n}"} for n in range(4)]})
    found = retrieval(flat(2, 3, **{"output.value": whole}), dropped=4)
    assert found.documents == tuple(Document(entry_id=f"m-{n}", text=f"text {n}") for n in range(4))
    assert found.lost == 0


def test_a_retrieval_of_which_nothing_is_left_lost_at_least_one():
    found = retrieval({"openinference.span.kind": "RETRIEVER"}, dropped=3)
    assert (found.documents, found.lost) == (None, 1)


def test_a_retrieval_without_content_says_nothing_and_an_empty_one_says_so():
    assert retrieval({"gen_ai.operation.name": "search_memory"}).documents is None
    assert retrieval({"gen_ai.operation.name": "search_memory", "gen_ai.memory.records": "[]"}).documents == ()


def test_a_span_that_the_user_names_is_a_retrieval():
    attributes = {"output.value": json.dumps([{"id": "m-1", "memory": "a"}])}
    assert retrieval(attributes).documents is None
    assert retrieval(attributes, reading=Reading(retrievers=("search",))).documents == (
        Document(entry_id="m-1", text="a"),
    )


def test_a_reranker_is_not_a_retrieval():
    found = retrieval({"openinference.span.kind": "RERANKER", "reranker.output_documents.0.document.id": "m-1",
                       "reranker.input_documents.0.document.id": "m-9"})  # fmt: skip
    assert (found.kind, found.documents) == ("rerank", (Document(entry_id="m-1"),))


def test_messages_of_a_model_are_read_flat():
    found = read_attributes(SPAN, {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "S",
        "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "what now?",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "mail it",
    }, Reading(), name="llm")  # fmt: skip
    assert (found.asked, found.answered) == ("what now?", "mail it")
