"""Typed Python clients of the tools."""

from ability_search.client.blocking_client import BlockingSearchClient
from ability_search.client.search_client import (
    CollectionInfo,
    Collections,
    Hits,
    Neighbours,
    SearchClient,
)
from ability_search.tools.inputs import DocumentInput
from kadi_client import ToolError

__all__ = [
    "BlockingSearchClient",
    "CollectionInfo",
    "Collections",
    "DocumentInput",
    "Hits",
    "Neighbours",
    "SearchClient",
    "ToolError",
]
