"""Paraphrase re-injection after a removal: the hazard-signature tombstone paper's benchmark, on the MemoryGraft corpus.

`data/` holds texts written for this project; of MemoryGraft's own text nothing is stored here, it is read from `--data`.
`python -m benchmarks.hst --help` says what runs.
"""
