"""The guard with its models: opened in one call, or served over HTTP."""
