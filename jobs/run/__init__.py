"""One audit from files on disk to a finished run folder."""
