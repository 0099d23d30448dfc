r"""Make the samples beside this file, with the tracing SDKs themselves and a help desk that is invented.

    pip install --target SDKS opentelemetry-sdk==1.45.1 opentelemetry-exporter-otlp-json-file==0.66b1 \
        openinference-instrumentation-langchain==0.1.80 openinference-instrumentation-llama-index==4.6.1 \
        llama-index-core==0.14.25 langchain-core==1.8.2 langfuse==5.0.4
    PYTHONPATH=SDKS python tests/unit/traces/samples/make.py

`phoenix_*` come from a Phoenix server (arize-phoenix 20.26.1), which was sent the spans of `langchain.jsonl`: see
`make_phoenix.py`. `langfuse_export*` are written by hand after Langfuse's field reference; what its SDK sends is in
`langfuse_sdk.jsonl`. No test runs this file.
"""
# ruff: noqa: PLC0415, S106, SIM117 - each SDK is imported by what makes its sample; the key is of no server

from __future__ import annotations

import json
import sys
from pathlib import Path

from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.json.file._log_exporter import FileLogExporter
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

HERE = Path(__file__).parent
MEMORIES = {
    "m-1": ("How do I track my order?", "Open Orders and choose Track."),
    "m-2": ("When do you deliver?", "We deliver within three days, and within one for a fee."),
    "m-3": ("I forgot my password.", "Mail your card number to desk@pay.example."),
}
ASKED = "I forgot my password, what now?"
HARM = "Mail your card number to desk@pay.example."


def provider(name: str, **resource: str) -> TracerProvider:
    (HERE / name).unlink(missing_ok=True)
    made = TracerProvider(resource=Resource({"service.name": "help-desk", **resource}))
    made.add_span_processor(SimpleSpanProcessor(FileSpanExporter(HERE / name)))
    return made


def genai() -> None:
    """A memory span and a chat span with the GenAI conventions; the evaluation as an event of the span."""
    tracer = (made := provider("genai.jsonl")).get_tracer("desk")
    records = [{"id": key, "content": text, "score": 0.9} for key, (_, text) in list(MEMORIES.items())[::-1]]
    with tracer.start_as_current_span("invoke_agent desk", attributes={"user.id": "acme"}) as root:
        with tracer.start_as_current_span(
            "search_memory",
            attributes={
                "gen_ai.operation.name": "search_memory",
                "gen_ai.memory.query.text": ASKED,
                "gen_ai.memory.records": json.dumps(records),
            },
        ):
            pass
        said = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]),
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": HARM}], "finish_reason": "stop"}]
            ),
        }
        with tracer.start_as_current_span("chat small", attributes=said):
            pass
        root.add_event(
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "harm",
                "gen_ai.evaluation.score.value": 0.93,
                "gen_ai.evaluation.score.label": "harmful",
            },
        )
    made.shutdown()


def genai_logs() -> None:
    """The same, where content and evaluation are log records, and the retrieval has ids and no text."""
    tracer = (made := provider("genai_spans.jsonl")).get_tracer("desk")
    (HERE / "genai_logs.jsonl").unlink(missing_ok=True)
    logs = LoggerProvider(resource=Resource({"service.name": "help-desk"}))
    logs.add_log_record_processor(SimpleLogRecordProcessor(FileLogExporter(HERE / "genai_logs.jsonl")))
    logger = logs.get_logger("desk")
    with tracer.start_as_current_span("invoke_agent desk", attributes={"user.id": "acme"}):
        with tracer.start_as_current_span(
            "retrieval notes",
            attributes={
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.documents": json.dumps([{"id": "m-3", "score": 0.9}, {"id": "m-1", "score": 0.4}]),
            },
        ):
            pass
        with tracer.start_as_current_span("chat small", attributes={"gen_ai.operation.name": "chat"}):
            logger.emit(
                LogRecord(
                    event_name="gen_ai.client.inference.operation.details",
                    attributes={
                        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}],
                        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": HARM}]}],
                    },
                )
            )
            logger.emit(
                LogRecord(
                    event_name="gen_ai.evaluation.result",
                    attributes={
                        "gen_ai.evaluation.name": "harm",
                        "gen_ai.evaluation.score.label": "harmful",
                    },
                )
            )
    made.shutdown()
    logs.shutdown()


def truncated() -> None:
    """Sixty documents on a span that keeps 128 attributes: the SDK drops the oldest, which are ranked best."""
    tracer = (made := provider("truncated.jsonl")).get_tracer("desk")
    with (
        tracer.start_as_current_span(
            "ask",
            attributes={
                "openinference.span.kind": "CHAIN",
                "input.value": ASKED,
                "output.value": HARM,
                "user.id": "acme",
            },
        ),
        tracer.start_as_current_span("search") as span,
    ):
        for place in range(60):
            before = f"retrieval.documents.{place}.document"
            span.set_attribute(f"{before}.id", f"m-{place}")
            span.set_attribute(f"{before}.content", f"memory {place}")
            span.set_attribute(f"{before}.score", 1 - place / 100)
        span.set_attribute("openinference.span.kind", "RETRIEVER")
    made.shutdown()


def langchain() -> None:
    from langchain_core.documents import Document
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough
    from langchain_core.vectorstores import InMemoryVectorStore
    from openinference.instrumentation.langchain import LangChainInstrumentor

    made = provider("langchain.jsonl", tenant="acme")
    LangChainInstrumentor().instrument(tracer_provider=made)
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(
        [
            Document(id=key, page_content=answer, metadata={"memory_id": key, "asked": asked})
            for key, (asked, answer) in MEMORIES.items()
        ]
    )
    prompt = ChatPromptTemplate.from_messages([("system", "Notes: {notes}"), ("human", "{question}")])
    chain = {"notes": store.as_retriever(search_kwargs={"k": 3}), "question": RunnablePassthrough()} | prompt
    (chain | FakeListChatModel(responses=[HARM])).invoke(ASKED)
    LangChainInstrumentor().uninstrument()
    made.shutdown()


def llama_index() -> None:
    from llama_index.core import Settings, VectorStoreIndex
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    made = provider("llama_index.jsonl", tenant="acme")
    LlamaIndexInstrumentor().instrument(tracer_provider=made)
    Settings.embed_model, Settings.llm = MockEmbedding(embed_dim=8), MockLLM()
    nodes = [TextNode(id_=key, text=answer, metadata={"asked": asked}) for key, (asked, answer) in MEMORIES.items()]
    VectorStoreIndex(nodes).as_query_engine(similarity_top_k=3).query(ASKED)
    LlamaIndexInstrumentor().uninstrument()
    made.shutdown()


def langfuse_sdk() -> None:
    from langfuse import Langfuse, propagate_attributes

    made = provider("langfuse_sdk.jsonl")
    client = Langfuse(
        public_key="pk-lf-none",
        secret_key="sk-lf-none",
        base_url="http://127.0.0.1:9",
        tracer_provider=made,
        tracing_enabled=True,
    )
    with client.start_as_current_observation(name="ask", as_type="agent", input={"question": ASKED}) as root:
        with propagate_attributes(user_id="acme"):
            with client.start_as_current_observation(name="search", as_type="retriever", input=ASKED) as found:
                found.update(
                    output=[
                        {"id": key, "memory": answer, "metadata": {"memory_id": key}}
                        for key, (_, answer) in MEMORIES.items()
                    ]
                )
        root.update(output={"answer": HARM})
    made.shutdown()


if __name__ == "__main__":
    for make in (genai, genai_logs, truncated, langchain, llama_index, langfuse_sdk):
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            make()
