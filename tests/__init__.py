"""Tests: unit, ray, e2e and conformance."""
