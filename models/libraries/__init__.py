"""What libraries of models do unasked, and how that is kept out."""
