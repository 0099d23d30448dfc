"""What MemAudit computes: formats, attribution, consistency, fusion, snapshots, reports.

No Ray, no torch, no network: an agent's own process can import it and pay nothing for the rest.
"""
