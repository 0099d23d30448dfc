"""Detectors that look at memories beside each other, and at what is known of all: none is of one memory by itself."""
