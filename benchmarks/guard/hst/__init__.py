"""Paraphrase re-injection after a removal: the hazard-signature tombstone paper's benchmark, on the MemoryGraft corpus.

`data/` holds texts written for this project; MemoryGraft's own text is read from `--data` and never stored here.
`python -m benchmarks.guard.hst --help` says what runs.
"""
