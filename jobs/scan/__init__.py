"""How a scan is run, and how what it found is read again."""
