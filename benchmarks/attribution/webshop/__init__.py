"""A WebShop-like store, a ReAct agent that shops in it from memories, and what counts as harm (paper App. B-D, RAP)."""
