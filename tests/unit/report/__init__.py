"""Unit tests of audit.report."""
