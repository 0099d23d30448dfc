"""Which entry does not belong: neighbours, entailment weights, the memory consistency graph."""
