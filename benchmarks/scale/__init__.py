"""How cost grows with stores, tenants and nights."""
