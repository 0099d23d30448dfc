"""Where each memory comes from, and what it may justify: derivation DAG, trust labels, descendants."""
