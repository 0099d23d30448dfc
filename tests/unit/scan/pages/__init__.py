"""Pages of a scan."""
