#!/usr/bin/env bash
# arize-phoenix-client 3.5.0 with pandas 3.1.1 and pyarrow 26.0.1: the data frame of span annotations cannot be written as
# Parquet while no annotation has metadata, which is the default.
#
# Guess: the frame that `get_span_annotations_dataframe` returns can be kept with `to_parquet`.
# Seen: the frame splits the dict `result` into columns of its own, and leaves the dict `metadata` as it is. An annotation
# without metadata comes as an empty dict; a column of these alone is a struct without children, which Parquet cannot hold.
# One annotation with metadata cures the writing, and then each other one reads back with that key, as None. So the same
# export works or fails by what people wrote; keep `metadata` as JSON text.
# No server takes part: a transport in the same process gives the answer.
#
# Output seen:
#   columns of result: result.explanation, result.label, result.score
#   no metadata: ArrowNotImplementedError
#   one of two has metadata: written, read back [{'by': 'ann'}, {'by': None}]
#   metadata as text: written, read back ['{}', '{}']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check arize-phoenix-client==3.5.0 pandas==3.1.1 pyarrow==26.0.1
cat > "$folder/seen.py" <<'PYTHON'
import json
import sys

import httpx
import pandas as pd
from phoenix.client import Client


def frame(*metadata):
    annotations = [
        {
            "id": f"annotation{number}",
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "source": "API",
            "user_id": None,
            "name": "correct",
            "annotator_kind": "HUMAN",
            "span_id": f"{number:016x}",
            "identifier": "",
            "metadata": one,
            "result": {"label": "yes", "score": 1.0, "explanation": None},
        }
        for number, one in enumerate(metadata, 1)
    ]
    body = {"data": annotations, "next_cursor": None}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    client = Client(http_client=httpx.Client(transport=transport, base_url="http://phoenix.example"))
    ids = [annotation["span_id"] for annotation in annotations]
    return client.spans.get_span_annotations_dataframe(span_ids=ids, project_identifier="notes")


def written(annotations):
    try:
        annotations.to_parquet(sys.argv[1])
    except NotImplementedError as error:
        return type(error).__name__
    return f"written, read back {pd.read_parquet(sys.argv[1])['metadata'].tolist()}"


plain = frame({}, {})
print("columns of result:", ", ".join(sorted(name for name in plain.columns if name.startswith("result"))))
print("no metadata:", written(plain))
print("one of two has metadata:", written(frame({"by": "ann"}, {})))
plain["metadata"] = plain["metadata"].map(json.dumps)
print("metadata as text:", written(plain))
PYTHON
cat > "$folder/expected" <<'TEXT'
columns of result: result.explanation, result.label, result.score
no metadata: ArrowNotImplementedError
one of two has metadata: written, read back [{'by': 'ann'}, {'by': None}]
metadata as text: written, read back ['{}', '{}']
TEXT
"$folder/venv/bin/python" "$folder/seen.py" "$folder/annotations.parquet" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
