"""Tests of benchmarks.webshop."""
