"""What commands do with a store, besides auditing it."""
