"""Unit tests of memory_audit.consistency."""
