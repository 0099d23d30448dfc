"""What the user reads: JSON, terminal table, SARIF and one self-contained HTML page."""
