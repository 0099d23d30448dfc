"""Agents' own memory systems, in processes of their own: the real packages, with fake models."""
