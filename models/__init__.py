"""With what MemAudit computes: language, entailment and embedding models behind small Protocols, each with a fake."""
