"""Stores with planted passages from public data that nothing here was tuned on: ConflictQA, and PoisonedRAG on NQ."""
