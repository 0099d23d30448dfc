"""The deterministic harness of MemLineage's idea; `benchmarks.lineage.__main__` says what it measures."""
