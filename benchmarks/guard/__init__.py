"""Benchmarks of the write guard."""
