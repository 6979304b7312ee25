"""Analysis of a collection's graph, its stored scores, and the option ``boost``."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document

from ability_search.extensions.notes import graph_analyzer
from kadi_client import ToolError


async def analyzed(network: Network, name: str = "docs") -> dict[str, Any]:
    answer = await network.call("notes-analyze", collection=name)
    found = await last_analysis(network, name)
    assert {field: answer[field] for field in found} == found
    return found


async def last_analysis(network: Network, name: str = "docs") -> dict[str, Any]:
    overview = await network.call("notes-overview", collection=name, include=["graph"])
    found: dict[str, Any] = overview["graph"]
    return found


async def index_star(network: Network) -> None:
    """A hub that ten notes link to, two notes of a session and two of a tag."""
    leaves = [
        document(f"leaf{n}", f"apple{n} pear{n} plum{n}", links=[{"target": "hub"}])
        for n in range(10)
    ]
    others = [
        document("s1", "ship mast", metadata={"session": "mon"}),
        document("s2", "flour yeast", metadata={"session": "mon"}),
        document("t1", "train rail", metadata={"tags": ["x", "y"]}),
        document("t2", "guitar string", metadata={"tags": "y"}),
        document("alone", "granite quartz"),
    ]
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("hub", "orchard overview"), *leaves, *others],
    )


async def test_links_tags_and_sessions_are_the_edges(network: Network) -> None:
    await index_star(network)
    found = await analyzed(network)
    assert found["chunks"] == 16
    assert {kind: found["edges"][kind] for kind in ("link", "tags", "session", "order")} == {
        "link": 10,
        "tags": 1,
        "session": 1,
        "order": 0,
    }
    assert found["central"][0]["source"] == found["bridges"][0]["source"] == "hub"
    assert sum(each["components"] * each["chunks"] for each in found["components"]) == 16
    assert sum(found["spectrum"]["sides"]) == found["spectrum"]["chunks"] >= 11
    nodes = found["drawing"]["nodes"]
    assert nodes[0]["source"] == "hub" and nodes[0]["centrality"] == 1
    ends = {
        (nodes[edge["start"]]["source"], nodes[edge["end"]]["source"])
        for edge in found["drawing"]["edges"]
        if edge["kind"] == "session"
    }
    assert ends in ({("s1", "s2")}, {("s2", "s1")})


async def test_the_analysis_is_a_job_whose_result_is_listed_once(network: Network) -> None:
    await index_star(network)
    await analyzed(network)
    info = await network.call("search-collection-info", collection="docs")
    (job,) = [each for each in info["jobs"] if each["kind"] == "analysis"]
    assert (job["state"], job["done"], job.get("result")) == ("done", 16, None)
    assert "graph" not in info


async def test_a_failed_analysis_keeps_the_result_of_the_one_before(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await index_star(network)
    found = await analyzed(network)
    monkeypatch.setattr(graph_analyzer, "LIMIT", 1)
    with pytest.raises(ToolError, match="at most 1"):
        await analyzed(network)
    info = await network.call("search-collection-info", collection="docs")
    (job,) = [each for each in info["jobs"] if each["kind"] == "analysis"]
    assert (job["state"], job.get("result")) == ("failed", None)
    assert await last_analysis(network) == found


@pytest.mark.parametrize("tool", ["notes-analyze", "notes-consolidate"])
async def test_a_worker_without_scipy_says_what_to_install(
    network: Network, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    await index_star(network)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ToolError, match=f"{tool}: the worker has no scipy") as caught:
        await network.call(tool, collection="docs")
    assert caught.value.code == "invalid_input"
    assert "ability-search[analysis]" in caught.value.hint


async def test_an_empty_collection_is_analysed_and_a_missing_one_is_not(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "one")])
    await network.call("search-delete", collection="docs", source="a")
    found = await analyzed(network)
    assert (found["chunks"], found["central"], found["components"]) == (0, [], [])
    with pytest.raises(ToolError) as failure:
        await analyzed(network, "none")
    assert failure.value.code == "not_found"


@pytest.mark.slow
@pytest.mark.engine
async def test_boost_prefers_central_chunks_and_is_off_by_default(network: Network) -> None:
    await index_star(network)
    await network.call(
        "search-index",
        collection="docs",
        documents=[
            document("cats a", "cats purr softly", links=[]),
            document("cats b", "cats purr softly today"),
            *(document(f"to{n}", f"x{n} y{n}", links=[{"target": "cats b"}]) for n in range(3)),
        ],
    )

    async def asked(**options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await network.call(
            "search-query", collection="docs", query="cats purr softly", explain=True, **options
        )
        return answer

    boost = {"centrality": 5}
    before = await asked(boost=boost)
    assert before["warnings"] == ["boost: docs was not analysed; call notes-analyze"]
    await analyzed(network)
    plain, boosted = await asked(), await asked(boost=boost)
    assert plain["results"][0]["source"] == "cats a"
    assert boosted["results"][0]["source"] == "cats b"
    assert "warnings" not in boosted
    told = {hit["source"]: hit["explain"]["boost"] for hit in boosted["results"]}
    assert told["cats b"]["centrality"] > told["cats a"]["centrality"]
    given = told["cats a"]
    assert given["after"] == pytest.approx(given["before"] * (1 + 5 * given["centrality"]) / 6)
    same = await asked(boost={"novelty": 0})
    assert [hit["score"] for hit in same["results"]] == [hit["score"] for hit in plain["results"]]


async def test_a_chunk_that_was_not_analysed_counts_like_the_mean(network: Network) -> None:
    await index_star(network)
    await analyzed(network)
    await network.call("search-index", collection="docs", documents=[document("new", "orchard")])
    answer = await network.call(
        "search-query",
        collection="docs",
        query="orchard",
        boost={"novelty": 1},
        explain=True,
        limit=50,
    )
    values = {hit["source"]: hit["explain"]["boost"]["novelty"] for hit in answer["results"]}
    others = [value for source, value in values.items() if source != "new"]
    assert values["new"] == pytest.approx(sum(others) / len(others))
