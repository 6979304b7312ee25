"""``queries``: several phrasings of one query, fused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.ability_search.flows.asking import MODES, ranking, search, sources
from tests.ability_search.flows.conftest import Network, Start, document

from kadi_client import ToolError

METHODS = ["convex", "rrf"]


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Texts about cats, about kittens, about both, and others; ten candidates per retriever."""
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [
            document("cat", "cats sleep all day"),
            document("kitten", "kitten care at home"),
            document("both", "cats and the care of a kitten"),
            *(document(f"rock{n}", f"granite {'stone ' * n}") for n in range(40)),
        ]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


@pytest.mark.parametrize("mode", MODES)
async def test_what_several_phrasings_find_comes_first(library: Network, mode: str) -> None:
    alone = await search(library, mode=mode)
    fused = await search(library, mode=mode, queries=["kitten care"])
    assert sources(alone)[0] == "cat"
    assert mode == "semantic" or sources(fused)[0] == "both"
    assert set(sources(fused)[:3]) == {"both", "cat", "kitten"}
    assert fused["query"] == "cats"


async def test_ranks_can_be_fused(library: Network) -> None:
    answer = await search(library, mode="keyword", fusion={"method": "rrf"}, queries=["kitten"])
    scores = dict(ranking(answer))
    assert scores["docs:both:0"] == pytest.approx(61 / 62)
    assert scores["docs:cat:0"] == scores["docs:kitten:0"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("mode", MODES)
async def test_a_query_phrased_twice_alike_keeps_its_ranking(library: Network, mode: str) -> None:
    for method in METHODS:
        alone = await search(library, mode=mode, fusion={"method": method})
        twice = await search(library, mode=mode, fusion={"method": method}, queries=["cats"])
        assert sources(twice) == sources(alone)
        if method == "convex":
            scores = [score for _, score in ranking(alone)]
            assert [score for _, score in ranking(twice)] == pytest.approx(scores)


async def test_explain_names_the_phrasings_that_found_a_hit(library: Network) -> None:
    answer = await search(library, mode="keyword", queries=["kitten care"], explain=True)
    found_by = {hit["source"]: hit["explain"]["queries"]["foundBy"] for hit in answer["results"]}
    asked = {source: [each["query"] for each in found] for source, found in found_by.items()}
    assert asked == {
        "cat": ["cats"],
        "kitten": ["kitten care"],
        "both": ["cats", "kitten care"],
    }
    assert [each["rank"] for each in found_by["both"]] == [2, 2]


async def test_pages_are_slices_of_one_list(library: Network) -> None:
    wanted = {"queries": ["stone", "granite stone stone"], "query": "granite"}
    whole = ranking(await search(library, **wanted, limit=40))
    pages = [await search(library, **wanted, limit=5, offset=n) for n in range(0, 40, 5)]
    assert len(whole) == 40
    assert [hit for page in pages for hit in ranking(page)] == whole


async def test_all_phrasings_are_embedded_together(library: Network) -> None:
    library.calls.clear()
    await search(library, queries=["kitten care", "felines", "pets"])
    (asked,) = [called for tool, called in library.calls if tool == "create-embedding"]
    assert asked["input"] == ["cats", "kitten care", "felines", "pets"]


async def test_the_options_of_the_query_apply_to_every_phrasing(library: Network) -> None:
    wanted = {"queries": ["kitten care"], "mode": "keyword"}
    assert sources(await search(library, **wanted, sources=["kit*"])) == ["kitten"]
    assert sources(await search(library, **wanted, minSignals=2)) == []
    several = await search(library, **wanted, collection=["docs"])
    assert {hit["collection"] for hit in several["results"]} == {"docs"}


@pytest.mark.parametrize(
    ("queries", "field"),
    [
        ([" "], "queries.0"),
        (["a"] * 9, "queries"),
        (["x" * 140_000], "queries.0"),
        ("a", "queries"),
    ],
)
async def test_wrong_phrasings_are_named(library: Network, queries: object, field: str) -> None:
    with pytest.raises(ToolError, match=field):
        await search(library, queries=queries)
