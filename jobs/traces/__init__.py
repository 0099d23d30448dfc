"""Trace files read in bounded memory, and made an events file."""
