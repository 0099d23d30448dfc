"""The audit of many tenants, group by group."""
