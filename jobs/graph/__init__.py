"""The whole consistency graph of many tenants, made block by block as a Ray Data pipeline, and kept on disk."""
