"""Unit tests of memory_audit.provenance."""
