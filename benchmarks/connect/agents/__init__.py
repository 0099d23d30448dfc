"""Agents with real memory systems, poisoned and repaired end to end."""
