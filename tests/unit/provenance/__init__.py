"""Unit tests of audit.provenance."""
