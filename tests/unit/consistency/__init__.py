"""Unit tests of audit.consistency."""
