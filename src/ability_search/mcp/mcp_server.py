"""The MCP server, shared by all transports."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel import Server

from ability_search import __version__
from ability_search.edges.tool_calls import Caller
from ability_search.mcp.mcp_tools import Tools
from ability_search.mcp.prompts import Prompts
from ability_search.mcp.resources import Resources

_INSTRUCTIONS = """\
ability-search indexes and searches texts. To answer from indexed texts, call search-query; \
search-collections lists the collections. Index texts with search-index and files with \
search-index-file. Cite the sources of hits in your answers."""


def new_server(caller: Caller) -> Server[Any]:
    """Return a server that calls the tools through ``caller``; it keeps no state."""
    tools, resources = Tools(caller), Resources(caller)
    prompts = Prompts(resources)
    return Server(
        "ability-search",
        version=__version__,
        title="ability-search",
        instructions=_INSTRUCTIONS,
        on_list_tools=tools.listing,
        on_call_tool=tools.call,
        on_list_resources=resources.listing,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_list_prompts=prompts.listing,
        on_get_prompt=prompts.get,
        on_completion=resources.complete,
    )
