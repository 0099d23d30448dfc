"""Guards of memory systems."""
