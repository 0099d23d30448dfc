"""The memories that agents really have: read without a trace, imported, and taken out again with evidence."""
