"""Which earlier memories a later one draws on: estimated edges against ground truth (issue 4, item 1)."""
