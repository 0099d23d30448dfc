"""Tests of the block list."""
