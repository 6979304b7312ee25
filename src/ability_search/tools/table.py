"""The table of the eight tools, and which tools there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ability_search.errors import ConfigurationError
from ability_search.extension import loaded
from ability_search.search.response import QueryResult, SimilarResult
from ability_search.tools import inputs, results
from ability_search.tools.tool_row import ToolRow

TOOLS: tuple[ToolRow, ...] = (
    ToolRow(
        name="search-index",
        title="Index documents",
        summary="Chunk, embed and store documents in a collection, which is created on first use."
        " Unchanged documents are skipped.",
        usage="Use it for texts that you have; for files on the worker's machine use"
        " search-index-file. A document replaces the stored one with the same source.",
        params=inputs.IndexInput,
        result=results.IndexResult,
        lean=("collection", "documents"),
        destructive=True,
        idempotent=False,
    ),
    ToolRow(
        name="search-index-file",
        title="Index files",
        summary="Index a file or a directory on the worker's machine.",
        usage="Reads Markdown, text, code, HTML, JSON, CSV, PDF, Office files and notebooks below"
        " its allowed roots. Call it again after changes; sweep deletes sources whose files no"
        " longer exist.",
        params=inputs.IndexFileInput,
        result=results.IndexFileResult,
        lean=("collection", "path", "sweep"),
        destructive=True,
    ),
    ToolRow(
        name="search-query",
        title="Search",
        summary="Search a collection by meaning, by words, or both (hybrid, the default).",
        usage="Use it first to answer a question from indexed documents; collection * searches all"
        " collections. Set maxResultTokens to what you can read, expand for text around the hits,"
        " mode keyword for names and error messages. Hits name their source: cite it.",
        params=inputs.QueryInput,
        result=QueryResult,
        lean=("collection", "query", "limit", "mode", "filter", "maxResultTokens"),
        read_only=True,
    ),
    ToolRow(
        name="search-similar",
        title="Find similar chunks",
        summary="Find the chunks of a collection that are nearest to one of its chunks.",
        usage="Use it with the chunkId of a hit to find more like it; for a question or words of"
        " your own use search-query.",
        params=inputs.SimilarInput,
        result=SimilarResult,
        lean=("collection", "chunkId", "limit"),
        read_only=True,
    ),
    ToolRow(
        name="search-reindex",
        title="Reindex a collection",
        summary="Chunk and embed a collection again from its stored texts, optionally in the"
        " background; or empty it.",
        usage="Use it to change the model, the chunking or the language of a collection. For new"
        " or changed texts use search-index.",
        params=inputs.ReindexInput,
        result=results.ReindexResult,
        lean=("collection", "model", "background"),
        destructive=True,
    ),
    ToolRow(
        name="search-delete",
        title="Delete a collection or sources",
        summary="Delete a collection, or sources of it.",
        usage="This cannot be undone; without a source all are deleted.",
        params=inputs.DeleteInput,
        result=results.DeleteResult,
        lean=("collection", "source", "sources"),
        destructive=True,
    ),
    ToolRow(
        name="search-collections",
        title="List collections",
        summary="List all collections with the number and size of their chunks.",
        usage="Use it to find out what can be searched.",
        params=inputs.CollectionsInput,
        result=results.CollectionsResult,
        lean=(),
        read_only=True,
    ),
    ToolRow(
        name="search-collection-info",
        title="Describe a collection",
        summary="Describe a collection and list its sources, page by page.",
        usage="Use it to see whether a document is indexed, and by which model.",
        params=inputs.CollectionInfoInput,
        result=results.CollectionInfoResult,
        lean=("collection", "limit", "cursor"),
        read_only=True,
    ),
)
"""The eight tools, in listing order."""

BY_NAME: Mapping[str, ToolRow] = {row.name: row for row in TOOLS}
"""The eight tools by name."""


def all_tools() -> tuple[ToolRow, ...]:
    """Return the eight tools and those of extensions, in listing order.

    Not every worker offers all of them, see :func:`offered_tools`.
    """
    return (*TOOLS, *loaded().tools)


OFFER_ALL = "all"
"""Stands for the families of all tools of extensions."""


def family_of(tool: str) -> str:
    """Return the family of a tool, such as ``memory`` for ``memory-write``."""
    return tool.partition("-")[0]


def families() -> tuple[str, ...]:
    """Return the families of the tools of extensions, in listing order."""
    return tuple(dict.fromkeys(family_of(row.name) for row in loaded().tools))


def offered_families(offer: Sequence[str] | None) -> tuple[str, ...]:
    """Return the families that the setting ``offer`` names, in listing order.

    Raises:
        ConfigurationError: if one has no tools.
    """
    possible = families()
    chosen = frozenset(offer or ())
    unknown = sorted(chosen.difference(possible, (OFFER_ALL,)))
    if unknown:
        raise ConfigurationError(
            f"offer: no extension that is loaded has tools {', '.join(map(repr, unknown))}",
            hint=f"Use names among {', '.join((*possible, OFFER_ALL))}; each stands for the tools"
            " that begin with it.",
        )
    return tuple(name for name in possible if name in chosen or OFFER_ALL in chosen)


def offered_tools(offer: Sequence[str] | None) -> tuple[ToolRow, ...]:
    """Return the tools that a worker offers, in listing order: the eight and those of families.

    Errors as for :func:`offered_families`.
    """
    chosen = offered_families(offer)
    return (*TOOLS, *(row for row in loaded().tools if family_of(row.name) in chosen))


def listed_tools(offer: Sequence[str] | None) -> tuple[ToolRow, ...]:
    """Return the tools that a client lists for workers with a setting ``offer``.

    If it is not set, the workers of a client may offer any, and all are listed.

    Errors as for :func:`offered_families`.
    """
    return all_tools() if offer is None else offered_tools(offer)


def offer_remedy(*names: str) -> str:
    """Return how the tools of families are offered."""
    listed = ",".join(names)
    return (
        f"Start the worker with --offer {listed}, or set SEARCH_OFFER={listed} for it"
        f" (config.yml: `offer: [{', '.join(names)}]`)."
    )


def tool_named(name: str) -> ToolRow | None:
    """Return a tool; ``None`` if there is none of this name."""
    return next((row for row in all_tools() if row.name == name), None)
