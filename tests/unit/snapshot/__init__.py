"""Unit tests of memory_audit.snapshot."""
