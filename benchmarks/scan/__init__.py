"""Benchmarks of `memaudit scan`."""
