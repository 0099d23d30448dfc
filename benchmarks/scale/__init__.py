"""What size costs: large stores, many tenants, night after night."""
