"""A transparency log: its Merkle tree, kept in tiles, and its signed checkpoints (C2SP)."""
