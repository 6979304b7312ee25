"""Resources read from a network without an embedder."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from tests.ability_search.flows.conftest import (  # noqa: F401 - fixtures
    Start,
    data_dir,
    document,
    down,
    start,
)

from ability_search.errors import NotFound
from ability_search.extensions.cli.tool_calls import Caller, LiveConnection
from ability_search.extensions.mcp.resources import Resources, chunk_uri
from kadi_client import ToolError

NAMES = ["a b.md", "q?x#y%20:7", "ü/日本.md", 'it\'s "quoted" \\ here', "one"]


def source_uri(source: str) -> str:
    return f"search://collection/docs/source/{quote(source, safe='')}"


@pytest.mark.slow
@pytest.mark.parametrize("dedup", [None, 0.9])
async def test_chunks_and_sources_are_read_without_an_embedder(
    start: Start,  # noqa: F811
    dedup: float | None,
) -> None:
    long = 12 if dedup else 260  # near-duplicates are read one by one
    sizes = dict(zip(NAMES, (3, 20, long, 12, 1), strict=True))
    texts = {
        name: [f"Rule {n} of {size}: knot {n} holds." for n in range(size)]
        for name, size in sizes.items()
    }
    documents = [document(name, "\n\n".join(parts)) for name, parts in texts.items()]
    async with start() as network:
        given = {"maxTokens": 16, "chunkStrategy": "paragraph"}
        given |= {} if dedup is None else {"dedupThreshold": dedup}
        await network.call("search-index", collection="docs", documents=documents, **given)
        network.model.failure = down
        live = LiveConnection(patience=5)
        live.use(network.client)
        resources = Resources(Caller(live, timeout=30))
        for name, parts in texts.items():
            whole = (await resources.content(source_uri(name))).text
            assert whole.split() == " ".join(parts).split(), "the whole source, in order"
            first = (await resources.content(chunk_uri("docs", f"docs:{name}:0"))).text
            assert whole.startswith(first)
        for missing in (source_uri("none"), chunk_uri("docs", "docs:one:7")):
            with pytest.raises(NotFound):
                await resources.content(missing)
        with pytest.raises(ToolError, match="no collection named 'dogs'"):
            await resources.content(chunk_uri("dogs", "dogs:one:0"))
