"""Memory systems of agents: read, imported, and emptied of what was found."""
