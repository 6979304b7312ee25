"""Operation: logs, metrics and traces."""
