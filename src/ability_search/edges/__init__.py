"""What the gateway and the MCP server share: calling the tools, as any client of the network does.

Nothing is kept here that another process would need.
"""
