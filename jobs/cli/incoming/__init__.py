"""Commands that bring something in: memories, and events."""
