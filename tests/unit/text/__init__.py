"""Text as attackers write it."""
