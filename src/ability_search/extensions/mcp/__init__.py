"""The tools over the Model Context Protocol, for assistants; a client of the broker.

Needs the extra ``mcp``.
"""
