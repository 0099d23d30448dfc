"""What the reader of acts is fitted on, how, and how it is tried out of fold."""
