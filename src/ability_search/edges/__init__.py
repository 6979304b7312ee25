"""Shared code of the gateway and the MCP server: calling tools as a client of the network.

It keeps no state that another process would need.
"""
