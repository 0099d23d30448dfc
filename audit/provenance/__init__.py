"""Who wrote what, and in which log: leaf encoding, Ed25519 keys, RFC 6962 trees, C2SP signed notes and checkpoints."""
