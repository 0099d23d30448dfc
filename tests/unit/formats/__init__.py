"""What users hand in."""
