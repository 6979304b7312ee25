"""Paths between two sources over links, their common neighbours, and expansion over three hops."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document

from kadi_client import ToolError


async def index_links(network: Network, **links: list[str | dict[str, Any]]) -> None:
    documents = [
        document(
            source,
            f"text{source} word{source}",
            title="",
            links=[{"target": each} if isinstance(each, str) else each for each in given],
        )
        for source, given in links.items()
    ]
    await network.call("search-index", collection="docs", documents=documents)


async def connection(network: Network, source: str, to: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = await network.call(
        "notes-paths", collection="docs", source=source, to=to, **options
    )
    return found


@pytest.mark.engine
async def test_paths_follow_links_both_ways_shortest_and_strongest_first(network: Network) -> None:
    await index_links(
        network,
        a=["b", {"target": "c", "weight": 0.5, "kind": "cites"}],
        b=["d"],
        c=["d"],
        d=[],
        e=["a"],
        f=["e", "d"],
    )
    found = await connection(network, "a", "d")
    assert [(path["sources"], path["strength"]) for path in found["paths"]] == [
        (["a", "b", "d"], 0.5),
        (["a", "c", "d"], 0.25),
        (["a", "e", "f", "d"], 0.25),
    ]
    assert found["paths"][1]["via"] == ["cites", "references"]
    assert found["common"] == ["b", "c"]
    back = await connection(network, "d", "a")
    assert [path["sources"][::-1] for path in back["paths"]] == [
        path["sources"] for path in found["paths"]
    ]


async def test_hops_limit_the_length_of_paths(network: Network) -> None:
    await index_links(network, a=["b"], b=["c"], c=["d"], d=["e"], e=[])
    assert [len((await connection(network, "a", "d", hops=h))["paths"]) for h in (1, 2, 3)] == [
        0,
        0,
        1,
    ]
    assert (await connection(network, "a", "b", hops=1))["paths"][0]["via"] == ["references"]
    assert (await connection(network, "a", "e"))["paths"] == []
    assert (await connection(network, "a", "c", limit=1))["common"] == ["b"]


async def test_unknown_sources_and_missing_starts_are_errors(network: Network) -> None:
    await index_links(network, a=[], b=[])
    assert await connection(network, "a", "b") == {"paths": [], "common": []}
    with pytest.raises(ToolError) as failure:
        await connection(network, "a", "none")
    assert failure.value.code == "not_found"
    for wrong in ({"to": "b"}, {"source": "a", "to": "a"}):
        with pytest.raises(ToolError) as failure:
            await network.call("notes-paths", collection="docs", **wrong)
        assert failure.value.code == "invalid_input"


async def test_graph_expansion_reaches_three_hops(network: Network) -> None:
    await index_links(network, a=["b"], b=["c"], c=["d"], d=["e"], e=[])
    near = [document(f"near{n}", f"texta worda more{n}", title="") for n in range(8)]
    await network.call("search-index", collection="docs", documents=near)
    answer = await network.call(
        "search-query",
        collection="docs",
        query="texta worda",
        mode="semantic",
        explain=True,
        graph={"hops": 3, "minSimilarity": -1, "kinds": ["references"]},
        limit=50,
    )
    reached = {hit["source"]: hit["explain"].get("graph") for hit in answer["results"]}
    assert {source: reached[source]["hops"] for source in "bcd"} == {"b": 1, "c": 2, "d": 3}
    assert reached["e"] is None
    with pytest.raises(ToolError) as failure:
        await network.call("search-query", collection="docs", query="a", graph={"hops": 4})
    assert failure.value.code == "invalid_input"
