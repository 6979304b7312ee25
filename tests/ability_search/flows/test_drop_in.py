"""Callers of the earlier search ability: their calls, and the fields that they read of each answer.

The calls and the fields are those of its source and of its own integration test. Rows of
:data:`CALLS` run in order over one collection, as such a caller makes them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ability_search.flows.conftest import MODEL, Network, starting
from tests.shapes import differences

pytestmark = pytest.mark.asyncio(loop_scope="module")

ARTICLE = """# Introduction

Rank fusion combines several ranked lists into one.

## Algorithm

The score of a document is the sum over all rankings of 1/(k + rank).

## Applications

Hybrid search combines keyword and semantic retrieval.
"""
CHUNK = "articles:fusion.md:0"
INDEXED = {
    "indexed": True,
    "collection": "articles",
    "documents": int,
    "chunks": int,
    "model": MODEL,
    "dimensions": 64,
}
STATISTICS = {"chunks": int, "minTokens": int, "maxTokens": int, "avgTokens": float}
HIT = {
    "chunkId": str,
    "source": str,
    "title": str,
    "content": str,
    "score": float,
    "metadata": dict,
}
FAILURE = {"success": False, "error": str, "hint": str, "collection": "articles"}
QUERY = {"collection": "articles", "query": "rank fusion algorithm"}
FOUND = {**QUERY, "results": [HIT], "count": int}

CALLS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("no collections yet", "search-collections", {}, {"collections": []}),
    (
        "a document, split at its headings",
        "search-index",
        {
            "collection": "articles",
            "documents": [{"source": "fusion.md", "title": "Fusion", "content": ARTICLE}],
            "chunkStrategy": "markdown-headers",
        },
        {**INDEXED, "documents": 1},
    ),
    (
        "two documents with all options",
        "search-index",
        {
            "collection": "articles",
            "documents": [
                {
                    "source": "cats.md",
                    "title": "Cats",
                    "content": "Cats purr when they are content.",
                    "metadata": {"lang": "en", "tags": ["pets"], "rank": 1},
                },
                {"source": "dogs.md", "title": "Dogs", "content": "Dogs bark at strangers."},
            ],
            "chunkStrategy": "auto",
            "maxTokens": 200,
            "model": MODEL,
        },
        {**INDEXED, "documents": 2, "chunks": 2},
    ),
    (
        "a Markdown file",
        "search-index-file",
        {"collection": "articles", "filePath": "note.md", "chunkStrategy": "auto"},
        {**INDEXED, "documents": 1},
    ),
    (
        "a JSON file that is a list of documents",
        "search-index-file",
        {"collection": "articles", "filePath": "list.json", "format": "json"},
        {**INDEXED, "documents": 2, "chunks": 2},
    ),
    (
        "a file that is not there",
        "search-index-file",
        {"collection": "articles", "filePath": "absent.md"},
        {**FAILURE, "tool": "search-index-file"},
    ),
    ("the default mode", "search-query", QUERY, {**FOUND, "mode": "hybrid"}),
    (
        "semantic",
        "search-query",
        {**QUERY, "mode": "semantic", "limit": 2, "model": MODEL},
        {**FOUND, "mode": "semantic", "count": 2},
    ),
    (
        "keyword",
        "search-query",
        {**QUERY, "mode": "keyword", "limit": 1},
        {**FOUND, "mode": "keyword", "count": 1},
    ),
    (
        "hybrid",
        "search-query",
        {**QUERY, "mode": "hybrid", "limit": 5},
        {**FOUND, "mode": "hybrid", "count": 5},
    ),
    (
        "an unknown mode",
        "search-query",
        {**QUERY, "mode": "fuzzy"},
        {**FAILURE, "tool": "search-query"},
    ),
    (
        "the neighbours of a chunk",
        "search-similar",
        {"collection": "articles", "chunkId": CHUNK, "limit": 3},
        {"results": [HIT], "count": 3, "sourceChunk": CHUNK},
    ),
    (
        "the neighbours of no chunk",
        "search-similar",
        {"collection": "articles", "chunkId": "articles:absent.md:0"},
        {**FAILURE, "tool": "search-similar"},
    ),
    (
        "all collections",
        "search-collections",
        {},
        {"collections": [{"name": "articles", **STATISTICS}]},
    ),
    (
        "one collection",
        "search-collection-info",
        {"collection": "articles"},
        {"collection": "articles", **STATISTICS, "sources": [str]},
    ),
    (
        "the chunks of one source deleted",
        "search-delete",
        {"collection": "articles", "source": "dogs.md"},
        {"deleted": 1, "collection": "articles", "source": "dogs.md"},
    ),
    (
        "emptied",
        "search-reindex",
        {"collection": "articles", "clear": True},
        {"collection": "articles", "deleted": int, "message": str},
    ),
    (
        "empty",
        "search-collection-info",
        {"collection": "articles"},
        {"collection": "articles", **STATISTICS, "chunks": 0, "sources": []},
    ),
    ("nothing found", "search-query", QUERY, {**FOUND, "results": [], "count": 0}),
    (
        "deleted",
        "search-delete",
        {"collection": "articles"},
        {"deleted": int, "collection": "articles", "source": None},
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    """A worker that may read the files of the calls."""
    home = tmp_path_factory.mktemp("home")
    files = home / "files"
    files.mkdir()
    (files / "note.md").write_text("# Note\n\nA note about ranked lists.\n")
    listed = [{"source": f"j{n}", "title": f"J{n}", "content": f"Jay {n}."} for n in (1, 2)]
    (files / "list.json").write_text(json.dumps(listed))
    async with starting(None, home)(SEARCH_ALLOWED_ROOTS=str(files)) as network:
        yield network


@pytest.mark.parametrize(
    ("tool", "tool_input", "answered"),
    [row[1:] for row in CALLS],
    ids=[f"{row[1]}, {row[0]}" for row in CALLS],
)
async def test_a_caller_of_the_earlier_ability_reads_what_it_read_before(
    network: Network, tool: str, tool_input: dict[str, Any], answered: dict[str, Any]
) -> None:
    if path := tool_input.get("filePath"):
        tool_input = {**tool_input, "filePath": str(allowed_root(network) / path)}
    answer = await network.client.invoke(tool, tool_input, timeout=60, check=False)
    assert differences(answer, answered) == []


def allowed_root(network: Network) -> Path:
    """Return the directory that the worker may read."""
    (root,) = network.settings.files.allowed_roots
    return Path(root)
