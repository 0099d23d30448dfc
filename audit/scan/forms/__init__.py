"""What a scan found, in the forms that other programs and people read."""
