"""What keeps a removed memory out: its hazards, behaviour and semantic key, in a signed tombstone."""
