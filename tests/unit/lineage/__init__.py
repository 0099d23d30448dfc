"""Tests of audit.lineage."""
