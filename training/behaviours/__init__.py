"""What the reader of behaviours is fitted on, how, and how it is tried out of fold."""
