"""Where MemAudit computes: the command line, the audit job, local and Ray executors."""
