"""Night after night: one configuration, one command, one lease a store."""
