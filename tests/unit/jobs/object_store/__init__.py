"""Stores in buckets of real servers."""
