"""Tests of the programs: the flow, its run folder, its executors."""
