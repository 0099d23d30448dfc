"""Fits the packaged readers of behaviour and hazards; nothing here is installed."""
