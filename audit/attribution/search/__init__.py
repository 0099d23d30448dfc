"""Which set of memories caused a batch of harmful events: the search, in rounds of replays."""
