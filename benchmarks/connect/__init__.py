"""How MemAudit does on the memories and the telemetry that agents really have."""
