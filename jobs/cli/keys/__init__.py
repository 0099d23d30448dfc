"""`memaudit keys`: the files of a key folder, and what its trust policy says of keys."""
