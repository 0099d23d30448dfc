"""Unit tests of memory_audit.report."""
