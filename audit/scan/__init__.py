"""What is in a memory before anything goes wrong: detectors, findings, and how they live from scan to scan."""
