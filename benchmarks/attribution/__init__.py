"""Benchmarks of the audit."""
