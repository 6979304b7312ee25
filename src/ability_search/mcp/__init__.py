"""The tools for assistants, over the Model Context Protocol: an edge beside the worker.

Needs the extra ``mcp``.
"""
