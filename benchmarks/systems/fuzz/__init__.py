"""Fuzzing of every decoder of untrusted bytes: one table of targets, run by three engines (see `__main__`)."""
