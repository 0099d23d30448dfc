"""Incidents whose harm comes of several memories together, none of which does it alone."""
