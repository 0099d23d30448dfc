"""MINJA (arXiv 2503.03704): the attack as its authors released it, read from the benchmark data."""
