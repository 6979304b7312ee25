"""Shared code of the gateway and the MCP server: stateless calls as a client of the network."""
