"""The trace task's own incidents, and the harm that is read off them."""
