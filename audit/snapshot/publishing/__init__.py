"""What makes a new version of a store: an append, a purge, a redate, a vacuum."""
