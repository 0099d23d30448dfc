"""Tests that need a real Ray on this machine."""
