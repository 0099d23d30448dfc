"""One decoder under atheris, in a process of its own: libFuzzer ends the process when it is done.

    python -m benchmarks.systems.fuzz.atheris_child NAME FOLDER INPUTS

Only `benchmarks.systems.fuzz` starts it. `FOLDER/corpus` grows by inputs that reach new code and `FOLDER/state.json`
counts. An input that a decoder answers with a foreign exception lies in `FOLDER/crashes` and ends the run with exit
code 70.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import traceback
from pathlib import Path

__all__ = ["FOREIGN"]

FOREIGN = 70
"""Exit code of a run that found something; libFuzzer's own are 1, 70 to 77 for its own kinds of trouble."""

WRITTEN_EVERY = 5_000
LONGEST_INPUT = 8_192


def main() -> None:
    """Fuzz one decoder with coverage of this project's code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the decoder's")
    parser.add_argument("folder", type=Path, help="of its corpus, crashes and state")
    parser.add_argument("inputs", type=int, help="how many to try")
    options = parser.parse_args()
    name, folder, inputs = options.name, options.folder, options.inputs
    import atheris  # noqa: PLC0415 - an optional extra, and --help needs none

    with atheris.instrument_imports(include=["audit", "models", "jobs"]):
        from benchmarks.systems.fuzz.targets import targets  # noqa: PLC0415 - imports are what is instrumented
    target = next(item for item in targets() if item.name == name)
    corpus, crashes = folder / "corpus", folder / "crashes"
    for place in (corpus, crashes):
        place.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    count = refused = 0

    def write_state() -> None:
        (folder / "state.json").write_text(json.dumps({"inputs": count, "refused": refused}))

    def one_input(data: bytes) -> None:
        nonlocal count, refused
        count += 1
        try:
            refused += not target.accepts(target.wrap(data))
        except Exception:  # noqa: BLE001 - every kind is a finding
            found = crashes / hashlib.sha256(data).hexdigest()[:16]
            found.write_bytes(data)
            write_state()
            traceback.print_exc()
            print(f"{name}: a foreign exception, the input is {found}", flush=True)
            os._exit(FOREIGN)
        if count % WRITTEN_EVERY == 0 or count == inputs:
            write_state()

    settings = [f"-runs={inputs}", f"-max_len={LONGEST_INPUT}", "-print_final_stats=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *settings, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
