"""Keeping removed memories out: hazard signatures, tombstones that carry them, and the guard of the write path."""
