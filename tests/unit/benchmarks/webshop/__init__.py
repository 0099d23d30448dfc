"""Tests of benchmarks.attribution.webshop."""
