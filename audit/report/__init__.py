"""What the user reads: JSON, terminal table and one self-contained HTML page."""
