"""How work is watched: what it tells while it goes on, to people, files, logs and metrics."""
