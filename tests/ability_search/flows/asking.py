"""Queries of the flow tests, and what is looked at of their answers."""

from __future__ import annotations

from typing import Any

from tests.ability_search.flows.conftest import Network

Answer = dict[str, Any]


async def ask(network: Network, query: str, **options: Any) -> Any:
    """Search the collection ``docs``."""
    return await network.call("search-query", collection="docs", query=query, **options)


async def search(network: Network, **options: Any) -> Answer:
    """Search ``docs`` for cats, unless told otherwise; the scores are in order, from 0 to 1."""
    asked = {"collection": "docs", "query": "cats", "limit": 40} | options
    answer: Answer = await network.call("search-query", **asked)
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    return answer


def sources(answer: Any) -> list[str]:
    """The sources of the hits, best first."""
    return [hit["source"] for hit in answer["results"]]


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
