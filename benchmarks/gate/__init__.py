"""Benchmarks of the gate."""
