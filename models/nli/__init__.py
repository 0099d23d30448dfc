"""Natural language inference."""
