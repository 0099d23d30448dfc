"""One file for each system whose memories are read (`memory_audit.jobs.connect.connector`)."""
