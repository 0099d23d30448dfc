"""A scan as a folder of pages for people: the store at a glance, its findings, the memories behind them, and nights."""

from __future__ import annotations

from memory_audit.scan.pages.writing import INDEX, page_files

__all__ = ["INDEX", "page_files"]
