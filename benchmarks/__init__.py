"""Measurements: every figure that README and documentation quote is written by a command in this package."""
