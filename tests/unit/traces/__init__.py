"""Traces of real SDKs, read as events."""

from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
