"""Where an audit's work is done: in this process or on a Ray cluster."""
