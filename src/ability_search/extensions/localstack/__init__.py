"""The local stack: one process tree over one data directory."""
