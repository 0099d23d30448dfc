"""Unit tests of audit.snapshot."""
