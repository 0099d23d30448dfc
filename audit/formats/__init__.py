"""Files that users and agents hand in: read strictly, bounded, told by line."""
