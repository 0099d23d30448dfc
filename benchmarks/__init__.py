"""Measurements: every figure the README quotes is written by a command in this package."""
