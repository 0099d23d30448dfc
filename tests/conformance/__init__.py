"""Other people's vectors, programs and attack suites, run against our formats."""
