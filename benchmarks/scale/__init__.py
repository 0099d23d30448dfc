"""Size: what grows with tenants, memories and nights, beside an earlier build in the same run."""
