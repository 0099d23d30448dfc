"""What real SDKs and servers wrote of one run of a help desk (`samples/make.py`), read as spans and as an event."""

import gzip
import json

import pytest

from memory_audit.entry import Entry
from memory_audit.jobs.traces.trace_files import records_of
from memory_audit.traces.harm import Label
from memory_audit.traces.read import read_record
from memory_audit.traces.records import Reading, Score, Span
from memory_audit.traces.resolution import Memories
from memory_audit.traces.trace import Trace
from tests.unit.traces import SAMPLES

ANSWERS = {
    "m-1": "Open Orders and choose Track.",
    "m-2": "We deliver within three days, and within one for a fee.",
    "m-3": "Mail your card number to desk@pay.example.",
}
ASKED, HARM = "I forgot my password, what now?", "Mail your card number to desk@pay.example."


PLAIN = Reading()


def read(*names: str, reading=PLAIN):
    found = [item for name in names for record in records_of(SAMPLES / name) for item in read_record(record, reading)]
    return [item for item in found if isinstance(item, Span)], [item for item in found if isinstance(item, Score)]


def retrieval(spans):
    """Return the documents of the retrieval that begins first."""
    first, *_ = sorted((span for span in spans if span.kind == "retrieval"), key=lambda span: span.start_us)
    return first


def event(spans):
    roots = [span for span in spans if span.parent_id == "" and span.asked == ASKED] or spans
    trace = Trace(sorted((s for s in spans if s.trace_id == roots[0].trace_id), key=lambda span: span.start_us))
    memories = Memories([
        Entry(tenant="acme", entry_id=key, principal="p", source="user", request=f"about {key}", response=text,
              created_at_ms=1) for key, text in ANSWERS.items()
    ])  # fmt: skip
    return trace.event(roots[0].trace_id, "acme", Label(harm="harmful", source="t"), trace.resolve(memories), 1.0)


@pytest.mark.parametrize(
    "names",
    [
        ["genai.jsonl"], ["genai_spans.jsonl", "genai_logs.jsonl"], ["langchain.jsonl"], ["langfuse_sdk.jsonl"],
        ["phoenix_spans.json"], ["phoenix_spans.parquet"], ["langfuse_export_observations.jsonl"],
    ],
)  # fmt: skip
def test_each_says_what_was_asked_answered_and_retrieved(names):
    spans, _ = read(*names)
    made = event(spans)
    assert (made.query, made.output, made.harm) == (ASKED, HARM, "harmful")
    assert "m-3" in made.retrieved
    assert made.extra["trace"]["unresolved"] == 0
    assert made.ts_ms > 1_790_000_000_000


@pytest.mark.parametrize("name", ["langchain.jsonl", "phoenix_spans.json", "phoenix_spans.parquet"])
def test_langchains_ids_are_found_in_the_output_of_the_retriever(name):
    documents = retrieval(read(name)[0]).documents
    assert {document.entry_id: document.text for document in documents} == ANSWERS
    assert all(document.keys == (document.entry_id,) for document in documents)


def test_llama_indexs_retrieval_within_a_retrieval_counts_once_and_shows_texts_and_not_nodes():
    spans, _ = read("llama_index.jsonl")
    assert len([span for span in spans if span.kind == "retrieval"]) == 2
    assert {document.entry_id: document.text for document in retrieval(spans).documents} == ANSWERS
    assert event(spans).extra["trace"]["resolved"] == {"id": 3}


def test_a_span_that_kept_128_attributes_says_how_many_documents_it_lost():
    found = retrieval(read("truncated.jsonl")[0])
    assert found.lost == 17
    ids = [document.entry_id for document in found.documents]
    assert ids[:2] == ["", "m-18"]  # of the document of rank 17 the id is gone, too
    assert len(found.documents) + found.lost == 60


@pytest.mark.parametrize(
    ("names", "score"),
    [
        (["genai.jsonl"], ("harm", 0.93, "harmful")),
        (["genai_logs.jsonl"], ("harm", None, "harmful")),
        (["phoenix_annotations.json"], ("harm", 1.0, "harmful")),
        (["phoenix_annotations.parquet"], ("harm", 1.0, "harmful")),
        (["langfuse_export_scores.jsonl"], ("harm", 0.93, "")),
    ],
)
def test_scores_come_from_events_log_records_annotations_and_exports(names, score):
    _, (first, *_) = read(*names)
    assert (first.name, first.value, first.label) == score
    assert first.trace_id or first.span_id


@pytest.mark.parametrize(("name", "attribute"), [("genai.jsonl", "user.id"), ("langchain.jsonl", "tenant"),
                                                 ("langfuse_export_observations.jsonl", "user.id"),
                                                 ("langfuse_sdk.jsonl", "user.id")])  # fmt: skip
def test_the_tenant_is_read_from_an_attribute_of_span_or_resource(name, attribute):
    spans, _ = read(name, reading=Reading(tenant_from=attribute))
    assert "acme" in {span.owner for span in spans}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_one_large_object_is_read_as_its_lines_are(tmp_path, indent, packed, monkeypatch):
    groups = [json.loads(line)["resourceSpans"][0] for line in (SAMPLES / "langchain.jsonl").read_text().splitlines()]
    data = json.dumps({"resourceSpans": groups}, indent=indent).encode()
    (tmp_path / "all.json").write_bytes(gzip.compress(data) if packed else data)
    monkeypatch.setattr("memory_audit.jobs.traces.trace_files.MAX_FIRST_BYTES", 5_000)
    reading = Reading(tenant_from="tenant")
    streamed = [item for record in records_of(tmp_path / "all.json") for item in read_record(record, reading)]
    monkeypatch.undo()
    assert streamed == read("langchain.jsonl", reading=reading)[0]
    assert len(streamed) == 6


def test_a_page_of_an_api_is_read_as_its_items_are(tmp_path):
    items = json.loads((SAMPLES / "phoenix_spans.json").read_text())
    (tmp_path / "page.json").write_text(json.dumps({"data": items, "next_cursor": None}, indent=2))
    (tmp_path / "line.json").write_text(json.dumps({"data": items, "next_cursor": None}))
    for name in ("page.json", "line.json"):
        found = [item for record in records_of(tmp_path / name) for item in read_record(record, Reading())]
        assert found == read("phoenix_spans.json")[0]
