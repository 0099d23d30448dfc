#!/usr/bin/env bash
# openinference-instrumentation-llama-index 4.6.1 with llama-index-core 0.14.25: one retrieval is two RETRIEVER spans, and the
# inner one has no documents, only their Python representation as text.
#
# Guess: a call of `retrieve` is one span of the kind RETRIEVER that lists the documents, and `output.value`, declared as
# application/json, holds them as JSON.
# Seen: `retrieve` and the `_retrieve` that it calls are a span of that kind each. Only the outer one has
# `retrieval.documents`. The `output.value` of both is a JSON list of strings such as "<NodeWithScore(node=TextNode(…)…>":
# id and score are there, the text is not. So whoever counts retrievals in a trace counts twice, and whoever takes the span
# next to the embedding, or spans without a child of the kind RETRIEVER, finds a retrieval without documents.
#
# Output seen:
#   retrievals: 1
#   VectorIndexRetriever.retrieve: outermost, documents m1, m2
#   VectorIndexRetriever._retrieve: inside VectorIndexRetriever.retrieve, documents none
#   output.value of both the same: True, application/json, a list of str, str
#   names m1: True, holds its text: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openinference-instrumentation-llama-index==4.6.1 \
    openinference-instrumentation==0.1.72 llama-index-core==0.14.25 llama-index-instrumentation==0.6.0 opentelemetry-sdk==1.45.2
cat > "$folder/seen.py" <<'PYTHON'
import json

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exported = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exported))
LlamaIndexInstrumentor().instrument(tracer_provider=provider)
notes = [TextNode(id_="m1", text="Orders go to Ann."), TextNode(id_="m2", text="Ann is on leave.")]
retriever = VectorStoreIndex(notes, embed_model=MockEmbedding(embed_dim=3)).as_retriever(similarity_top_k=2)
exported.clear()
retriever.retrieve("Who takes orders?")
print("retrievals: 1")

spans = {span.context.span_id: span for span in exported.get_finished_spans()}
retrieving = [span for span in spans.values() if span.attributes["openinference.span.kind"] == "RETRIEVER"]
for span in sorted(retrieving, key=lambda span: span.start_time):
    place = f"inside {spans[span.parent.span_id].name}" if span.parent else "outermost"
    ids = [value for key, value in sorted(span.attributes.items()) if key.endswith(".document.id")]
    print(f"{span.name}: {place}, documents {', '.join(ids) or 'none'}")
first, second = retrieving
output, kind = first.attributes["output.value"], first.attributes["output.mime_type"]
same = output == second.attributes["output.value"]
types = ", ".join(type(one).__name__ for one in json.loads(output))
print(f"output.value of both the same: {same}, {kind}, a list of {types}")
print(f"names m1: {'m1' in output}, holds its text: {'Orders go to Ann.' in output}")
PYTHON
cat > "$folder/expected" <<'TEXT'
retrievals: 1
VectorIndexRetriever.retrieve: outermost, documents m1, m2
VectorIndexRetriever._retrieve: inside VectorIndexRetriever.retrieve, documents none
output.value of both the same: True, application/json, a list of str, str
names m1: True, holds its text: False
TEXT
"$folder/venv/bin/python" "$folder/seen.py" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
