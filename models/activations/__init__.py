"""What a small backbone's hidden states tell of a text: taught behaviour and hazards."""
