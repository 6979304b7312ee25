"""Queries of the flow tests, and what is looked at of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.ability_search.flows.conftest import Network

Answer = dict[str, Any]
Hits = list[dict[str, Any]]

MODES = ["semantic", "keyword", "hybrid"]


async def ask(network: Network, query: str, **options: Any) -> Any:
    """Search the collection ``docs``."""
    return await network.call("search-query", collection="docs", query=query, **options)


async def search(network: Network, **options: Any) -> Answer:
    """Search ``docs`` for cats, unless told otherwise; the hits are as they have to be."""
    asked = {"collection": "docs", "query": "cats", "limit": 40} | options
    return await _searched(network, asked)


async def hits_of(network: Network, query: str = "cats", /, **options: Any) -> Hits:
    """The hits of a query of ``docs``, as many as come without a limit."""
    answer = await _searched(network, {"collection": "docs", "query": query} | options)
    hits: Hits = answer["results"]
    return hits


async def _searched(network: Network, asked: dict[str, Any]) -> Answer:
    """The answer, whose hits are in order, each once, with scores from 0 to 1."""
    answer: Answer = await network.call("search-query", **asked)
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    ids = [hit["chunkId"] for hit in answer["results"]]
    assert len(ids) == len(set(ids))
    return answer


def sources(answer: Any) -> list[str]:
    """The sources of the hits, best first."""
    return [hit["source"] for hit in answer["results"]]


def scores_of(hits: Hits) -> dict[str, float]:
    """The score of each source."""
    return {hit["source"]: hit["score"] for hit in hits}


def ranking(answer: Any) -> list[tuple[str, float]]:
    """The hits by chunkId with their scores, best first."""
    return [(hit["chunkId"], hit["score"]) for hit in answer["results"]]


async def assert_unchanged(
    network: Network, *, wish: dict[str, Any], said: str, **options: Any
) -> str:
    """The hits are those of a query without a wish, and one warning says why; returns it."""
    plain = await search(network, **options)
    answer = await search(network, **options, **wish)
    assert answer["results"] == plain["results"]
    (warning,) = answer["warnings"]
    assert said in warning
    return str(warning)


def is_search(tool: str, tool_input: Mapping[str, Any]) -> bool:
    """Return whether a call of the database is the search of a query, by whichever way."""
    return tool == "arcade-index-search" or "$unindexed" in tool_input.get("query", "")
