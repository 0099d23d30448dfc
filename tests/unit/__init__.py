"""Unit tests; each file mirrors one source file."""
