"""The deterministic harness of MemLineage's idea; `benchmarks.gate.lineage.__main__` says what it measures."""
