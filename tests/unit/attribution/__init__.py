"""Tests of attribution: no model, no Ray."""
