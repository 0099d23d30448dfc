"""How a replay is made: retrieval, the agent, the harm scorer, and which memories are left out."""
