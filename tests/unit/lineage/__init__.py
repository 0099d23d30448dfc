"""Tests of memory_audit.lineage."""
