"""Acting upon a run: its seal is checked, what it names is removed or set aside, and that is attested."""
