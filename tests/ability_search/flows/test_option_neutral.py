"""Options in the setting that asks for nothing: the answer is the one without them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES
from tests.ability_search.flows.conftest import Network, document

NEUTRAL: tuple[dict[str, Any], ...] = (
    {"filter": {}},
    {"sources": ["**"]},
    {"excludeSources": []},
    {"minScore": -1},
    {"hypotheticalAnswer": None},
    {"fusion": None},
    {"fullText": {"weight": 0, "fields": ["title"]}},
    {"fullText": {"enabled": False, "language": "klingon"}},
    {"rerank": {}},
    {"rerank": {"title": {"weight": 0, "rules": {"contains": "c", "priority": 1, "sort": "asc"}}}},
    {"reranker": None},
    {"extended": []},
    {"extended": ["documents"]},
    {"prf": None},
    {"understand": True},
    {"asOf": None},
    {"temporal": {}},
    {"temporal": {"order": None}},
    {"temporal": {"order": "newest", "weight": 0}},
    {"timeRange": {"from": "2024-03-01"}, "temporal": {"weight": 0}},
    {"exclude": []},
    {"decay": {"weight": 0, "halfLifeDays": 0.001, "agentId": "ann"}},
    {"decay": {"floor": 1}},
    {"graph": None},
    {"boost": {"centrality": 0, "novelty": 0}},
    {"diversity": 1},
    {"maxPerSource": 1000},
    {"expand": None},
    {"maxResultTokens": 10_000_000},
    {"expandQuery": False},
    {"queries": []},
)
"""Every option that may change a list of hits, in each of its settings that does not."""

WITHOUT = ("timings", "budget")
"""What an option that changes nothing may still tell."""


async def answer(network: Network, **asked: Any) -> dict[str, Any]:
    found = await network.call("search-query", query="cats and dogs", limit=8, **asked)
    return {name: value for name, value in found.items() if name not in WITHOUT}


@pytest.mark.slow
@pytest.mark.parametrize("collection", ["docs", ["docs", "more"]])
async def test_what_asks_for_nothing_changes_nothing(network: Network, collection: Any) -> None:
    documents = [
        {
            "source": f"d{n}",
            "title": "Cats" if n % 3 else "",
            "content": f"cats {'and dogs ' * (n % 4)}of March 2024 number{n}",
            "metadata": {"mixed": [n, str(n), None, True][n % 4]},
            "links": [{"target": f"d{(n + 5) % 12}"}],
        }
        for n in range(12)
    ]
    for name in ("docs", "more"):
        await network.call("search-index", collection=name, documents=documents)
    for mode in MODES:
        plain = await answer(network, collection=collection, mode=mode)
        assert plain["count"] == 8
        for options in NEUTRAL:
            found = await answer(network, collection=collection, mode=mode, **options)
            assert found == plain, (mode, options)


async def test_stages_that_were_at_work_say_what_they_took(network: Network) -> None:
    documents = [document(f"d{n}", f"cats of 2024-0{n}-01") for n in range(1, 7)]
    await network.call("search-index", collection="docs", documents=documents)
    asked = {
        "fullText": {},
        "timeRange": {"from": "2024-03-01"},
        "temporal": {"order": "newest"},
        "exclude": ["dogs"],
        "rerank": {"source": {"rules": {"sort": "asc"}}},
        "decay": {},
    }
    stages = {"fullText", "temporal", "order", "exclusion", "rules", "decay"}
    for mode in MODES:
        told = await network.call(
            "search-query", collection="docs", query="cats", mode=mode, explain=True, **asked
        )
        assert stages <= told["timings"].keys()
        # Exclusions read texts as well, outside of the ranking.
        scorers = stages - {"exclusion"}
        assert sum(told["timings"][name] for name in scorers) <= told["timings"]["ranking"]
        assert stages <= told["results"][0]["explain"].keys()
        plain = await network.call(
            "search-query", collection="docs", query="cats", mode=mode, explain=True
        )
        assert not stages & plain["timings"].keys()
