"""Benchmarks of speed, crashes and malformed input."""
