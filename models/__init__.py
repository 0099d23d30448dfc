"""With what MemAudit computes: language, entailment and embedding models behind small Protocols, each with a fake.

An audit tells nobody: what the libraries below would send home is switched off before any of them is imported.
"""

import os

for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")
