"""How a write is judged: settings, decision, and what was refused before."""
