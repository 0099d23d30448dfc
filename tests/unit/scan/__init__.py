"""Tests of `audit/scan`."""
