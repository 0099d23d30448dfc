"""A store's rows as columns: Parquet, CBOR, and where every leaf went."""
