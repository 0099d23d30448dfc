#!/usr/bin/env bash
# kubernetes-validate 1.37.0: a CronJob whose `concurrencyPolicy`, `restartPolicy` or `schedule` no API server takes is
# found valid, in strict mode too.
#
# Guess: what has a few permitted values (Allow, Forbid, Replace; Always, OnFailure, Never) is checked against these, as
# misspelt members are.
# Seen: a value is only checked for being a string. The published schema of Kubernetes names the values in the description
# of a member, and has no `enum` for them. A misspelt member and a value of another type are refused. So a schedule that is
# meant to forbid two runs at once, and has a typing error there, passes every check that is made offline from the schema.
#
# Output seen:
#   concurrencyPolicy 'Forbid': valid for 1.37
#   concurrencyPolicy 'Forbit': valid for 1.37
#   restartPolicy 'Sometimes': valid for 1.37
#   schedule 'every night': valid for 1.37
#   concurrencyPolicy 7: ValidationError
#   concurencyPolicy 'Forbid': ValidationError
#   enum in the schema: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0
cat > "$folder/seen.py" <<'PYTHON'
import json
from pathlib import Path

import kubernetes_validate


def job(policy="Forbid", restart="Never", schedule="0 2 * * *", member="concurrencyPolicy"):
    pod = {"restartPolicy": restart, "containers": [{"name": "audit", "image": "example/audit:1"}]}
    spec = {"schedule": schedule, member: policy, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec}


def tell(what, manifest):
    try:
        print(f"{what}: valid for {kubernetes_validate.validate(manifest, '1.37', strict=True)}")
    except kubernetes_validate.ValidationError as error:
        print(f"{what}: {type(error).__name__}")


tell("concurrencyPolicy 'Forbid'", job())
tell("concurrencyPolicy 'Forbit'", job("Forbit"))
tell("restartPolicy 'Sometimes'", job(restart="Sometimes"))
tell("schedule 'every night'", job(schedule="every night"))
tell("concurrencyPolicy 7", job(7))
tell("concurencyPolicy 'Forbid'", job(member="concurencyPolicy"))
schema = next(Path(kubernetes_validate.__file__).parent.rglob("v1.37.0-local/cronjobspec-batch-v1.json"))
member = json.loads(schema.read_text())["properties"]["concurrencyPolicy"]
print("enum in the schema:", "enum" in member)
PYTHON
cat > "$folder/expected" <<'TEXT'
concurrencyPolicy 'Forbid': valid for 1.37
concurrencyPolicy 'Forbit': valid for 1.37
restartPolicy 'Sometimes': valid for 1.37
schedule 'every night': valid for 1.37
concurrencyPolicy 7: ValidationError
concurencyPolicy 'Forbid': ValidationError
enum in the schema: False
TEXT
"$folder/venv/bin/python" "$folder/seen.py" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
