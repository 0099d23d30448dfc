"""End to end: real models, a real Ray, a real store."""
