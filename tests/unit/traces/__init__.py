"""Traces of real SDKs, read as events."""
