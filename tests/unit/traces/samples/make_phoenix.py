"""Send the spans of `langchain.jsonl` to a Phoenix server on loopback, annotate one, and keep what its client exports.

    pip install --target PHOENIX arize-phoenix==20.26.1
    PHOENIX_WORKING_DIR=DIR PHOENIX_PORT=6106 PYTHONPATH=PHOENIX python -m phoenix.server.main serve
    PYTHONPATH=PHOENIX python tests/unit/traces/samples/make_phoenix.py http://127.0.0.1:6106

No test runs this file.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import time
import urllib.request
from pathlib import Path

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from phoenix.client import Client

HERE = Path(__file__).parent


def as_protobuf(line: str) -> bytes:
    """Return a line of OTLP/JSON as OTLP's protobuf: general protobuf JSON has base64 where OTLP has hex."""
    record = json.loads(line)
    for group in record["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(record, ExportTraceServiceRequest()).SerializeToString()


def main(server: str) -> None:
    for line in (HERE / "langchain.jsonl").read_text().splitlines():
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{server}/v1/traces",
            data=gzip.compress(as_protobuf(line)),
            headers={"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
        )
        urllib.request.urlopen(request).close()  # noqa: S310
    time.sleep(5)
    client = Client(base_url=server)
    spans = client.spans.get_spans(project_identifier="default", limit=100)
    root = next(span for span in spans if not span.get("parent_id"))
    client.spans.add_span_annotation(
        span_id=root["context"]["span_id"],
        annotation_name="harm",
        annotator_kind="HUMAN",
        label="harmful",
        score=1.0,
    )
    time.sleep(5)
    (HERE / "phoenix_spans.json").write_text(json.dumps(spans, indent=1) + "\n")
    notes = client.spans.get_span_annotations(span_ids=[root["context"]["span_id"]], project_identifier="default")
    (HERE / "phoenix_annotations.json").write_text(json.dumps(notes, indent=1) + "\n")
    client.spans.get_spans_dataframe(project_identifier="default").to_parquet(HERE / "phoenix_spans.parquet")
    annotations = client.spans.get_span_annotations_dataframe(
        span_ids=[root["context"]["span_id"]], project_identifier="default"
    )
    annotations.drop(columns="metadata").to_parquet(HERE / "phoenix_annotations.parquet")  # {} fits no Parquet column


if __name__ == "__main__":
    main(sys.argv[1])
