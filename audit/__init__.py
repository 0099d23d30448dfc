"""What MemAudit computes: formats, attribution, consistency, fusion, snapshots, reports. No Ray, no torch, no network."""
