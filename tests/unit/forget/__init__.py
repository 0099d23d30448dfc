"""Tests of the lockout."""
