"""Hazard labels of a text, read by the backbone and by entailment."""
