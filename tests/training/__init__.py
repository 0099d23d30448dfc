"""How the packaged readers are fitted."""
