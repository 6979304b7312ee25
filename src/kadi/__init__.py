"""A Python client for the KADI agent network: connect, serve tools, call tools, exchange events."""
