"""``graph``: neighbours of the first hits, over links and the order of chunks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.asking import Hits, hits_of
from tests.ability_search.flows.conftest import Network, Start, document, down, word_vector

from ability_search.extensions.notes.graph_stages import SHARE, lifted

ANY = -1.0
"""Any cosine will do."""


def linked(source: str, content: str, *links: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    given = [{"target": link} if isinstance(link, str) else link for link in links]
    return document(source, content, links=given, **({"title": ""} | more))


async def index(network: Network, *documents: dict[str, Any], name: str = "docs") -> None:
    answer = await network.call(
        "search-index",
        collection=name,
        documents=list(documents),
        chunkStrategy="markdown-headers",
    )
    assert not answer["failed"]


async def search(network: Network, query: str, graph: Any, **options: Any) -> Hits:
    asked = {"mode": "semantic", "explain": True} | options
    return await hits_of(network, query, graph=graph, **asked)


def reached(hits: Hits) -> dict[str, dict[str, Any]]:
    """What is told of the hits that are neighbours, by their sources."""
    return {hit["source"]: hit["explain"]["graph"] for hit in hits if "graph" in hit["matchedVia"]}


async def crowd(network: Network, count: int = 60) -> None:
    """Documents that are nearer to cats than those that tests link."""
    await index(network, *(linked(f"c{n:02}", f"cats cats birds{n}") for n in range(count)))


async def test_links_are_walked_both_ways(network: Network) -> None:
    await crowd(network)
    await index(
        network,
        linked("start", "cats", {"target": "to", "kind": "derives_from"}),
        linked("to", "cats one two three"),
        linked("from", "cats four five six", "start"),
        linked("alone", "cats seven eight nine"),
    )
    found = reached(await search(network, "cats", {"minSimilarity": 0.2}, limit=100))
    assert found.keys() == {"to", "from"}
    assert (found["to"]["from"], found["to"]["via"]) == ("docs:start:0", ["derives_from"])
    assert (found["from"]["via"], found["from"]["hops"]) == (["references"], 1)


async def test_without_the_option_nothing_is_walked(network: Network) -> None:
    await index(network, linked("a", "cats", "b"), linked("b", "dogs"))
    (answer,) = [await network.call("search-query", collection="docs", query="cats")]
    assert all("graph" not in hit["matchedVia"] for hit in answer["results"])
    assert "graph" not in answer["timings"]


def cosine(text: str, query: str = "cats") -> float:
    one, other = word_vector(query), word_vector(text)
    return float(one @ other / (one @ one * (other @ other)) ** 0.5)


async def test_a_neighbour_that_no_arm_found_joins(start: Start) -> None:
    near = [f"cats cats bird{n}" for n in range(40)]
    tenth = sorted(map(cosine, near))[-9]  # the tenth with the start itself
    far = next(
        text
        for n in range(100)
        if cosine(text := f"cats cats cats word{n} more{n}") < tenth < lifted(cosine(text), 1, 1)
    )
    async with start(SEARCH_CANDIDATES="10") as network:
        await index(network, *(linked(f"c{n:02}", text) for n, text in enumerate(near)))
        await index(network, linked("start", "cats", "far"), linked("far", far))
        plain = await search(network, "cats", None)
        hits = await search(network, "cats", {"kinds": ["references"]})
    assert "far" not in {hit["source"] for hit in plain}
    assert hits[0]["chunkId"] == plain[0]["chunkId"] == "docs:start:0"
    assert {hit["source"] for hit in hits} - {hit["source"] for hit in plain} == {"far"}
    (joined,) = [hit for hit in hits if hit["source"] == "far"]
    assert joined["matchedVia"] == ["graph"]
    assert joined["scores"]["semantic"] == pytest.approx(cosine(far), abs=1e-4)


async def test_a_neighbour_is_moved_a_little_towards_its_hit(network: Network) -> None:
    await index(
        network,
        linked("start", "cats", {"target": "half", "weight": 0.5}, {"target": "full"}),
        linked("half", "cats one two three"),
        linked("full", "cats four five six"),
    )
    hits = {hit["source"]: hit for hit in await search(network, "cats", {"minSimilarity": ANY})}
    top = hits["start"]["score"]
    for source, strength in (("half", 0.5), ("full", 1.0)):
        own = hits[source]["explain"]["fusion"]["score"]
        assert hits[source]["score"] == pytest.approx(own + SHARE * strength * (top - own))
        assert hits[source]["explain"]["graph"]["strength"] == strength
    assert top == hits["start"]["explain"]["fusion"]["score"]


async def test_two_hops_only_where_they_are_asked_for(network: Network) -> None:
    await crowd(network)
    await index(
        network,
        linked("start", "cats", {"target": "near", "kind": "a", "weight": 0.8}),
        linked("near", "cats dogs one two", {"target": "far", "kind": "b", "weight": 0.5}),
        linked("far", "cats birds three four"),
        linked("farther", "cats birds mice five", "far"),
    )
    graph = {"minSimilarity": 0.2}
    assert reached(await search(network, "cats", graph, limit=100)).keys() == {"near"}
    found = reached(await search(network, "cats", graph | {"hops": 2}, limit=100))
    assert found.keys() == {"near", "far"}
    assert found["far"]["via"] == ["a", "b"]
    assert found["far"]["hops"] == 2
    assert found["far"]["strength"] == pytest.approx(0.8 * 0.5 / 2)


async def test_of_two_first_hits_the_second_is_a_neighbour_of_the_better_one(
    network: Network,
) -> None:
    await index(
        network,
        linked("best", "cats"),
        linked("second", "cats dogs", "best"),
        linked("third", "cats dogs birds mice", "second"),
    )
    found = reached(await search(network, "cats", {"minSimilarity": ANY}))
    assert {source: told["from"] for source, told in found.items()} == {
        "second": "docs:best:0",
        "third": "docs:second:0",
    }


async def test_the_way_may_lead_over_what_is_not_similar(network: Network) -> None:
    await crowd(network)
    await index(
        network,
        linked("start", "cats", "bridge"),
        linked("bridge", "zebra quagga okapi", "far"),
        linked("far", "cats one two three"),
    )
    found = reached(await search(network, "cats", {"hops": 2, "minSimilarity": 0.3}, limit=100))
    assert found.keys() == {"far"}


async def test_only_the_kinds_that_are_asked_for_and_then_no_order(network: Network) -> None:
    await crowd(network)
    await index(
        network,
        linked(
            "start",
            f"# One\n\n{'cats ' * 40}\n\n# Two\n\ncats dogs frogs toads",
            {"target": "a", "kind": "wanted"},
            {"target": "b", "kind": "other"},
        ),
        linked("a", "cats one two three"),
        linked("b", "cats four five six"),
    )
    every = await search(network, "cats", {"minSimilarity": 0.2}, limit=100)
    assert reached(every).keys() == {"a", "b", "start"}
    some = await search(network, "cats", {"minSimilarity": 0.2, "kinds": ["wanted"]}, limit=100)
    assert reached(some).keys() == {"a"}


async def test_chunks_beside_a_hit_are_neighbours(network: Network) -> None:
    await crowd(network, 80)
    parts = [f"# P{n}\n\n{'cats ' * (9 if n == 3 else 1)}word{n} more{n} yet{n}" for n in range(7)]
    await index(network, document("start", "\n\n".join(parts), title=""))
    for hops, beside in ((1, {2, 4}), (2, {1, 2, 4, 5})):
        hits = await search(network, "cats", {"minSimilarity": 0.1, "hops": hops}, limit=100)
        own = [hit for hit in hits if "graph" in hit["matchedVia"]]
        assert {hit["chunkIndex"] for hit in own if hit["source"] == "start"} == beside
        for hit in own:
            distance = abs(hit["chunkIndex"] - 3)
            assert hit["explain"]["graph"]["via"] == ["order"] * distance


async def test_a_linked_source_contributes_its_best_chunk(network: Network) -> None:
    await crowd(network)
    parts = ["# A\n\ndogs dogs dogs", "# B\n\ncats cats one two", "# C\n\ncats three four five"]
    await index(network, linked("start", "cats", "long"), linked("long", "\n\n".join(parts)))
    hits = await search(network, "cats", {"minSimilarity": ANY, "kinds": ["references"]}, limit=100)
    own = [hit["chunkIndex"] for hit in hits if "graph" in hit["matchedVia"]]
    assert own == [1]


async def test_what_is_less_similar_does_not_join(network: Network) -> None:
    await index(network, linked("start", "cats", "b"), linked("b", "cats one two three four"))
    own = cosine("cats one two three four")
    for least, there in ((own - 0.01, {"b"}), (own + 0.01, set())):
        assert reached(await search(network, "cats", {"minSimilarity": least})).keys() == there


async def test_excluded_sources_neither_join_nor_lead_anywhere(network: Network) -> None:
    await crowd(network)
    await index(
        network,
        linked("start", "cats", "secret"),
        linked("secret", "cats secret", "far"),
        linked("far", "cats one two three"),
    )
    graph = {"hops": 2, "minSimilarity": 0.1}
    found = reached(await search(network, "cats", graph, limit=100))
    assert found.keys() >= {"secret", "far"}
    for mode in ("semantic", "hybrid"):
        hits = await search(network, "cats", graph, excludeSources=["secret"], limit=100, mode=mode)
        assert "secret" not in str(hits)
        assert reached(hits) == {}


async def test_filters_hold_for_neighbours(network: Network) -> None:
    await index(
        network,
        linked("start", "cats", "en", "de", metadata={"lang": "en"}),
        linked("en", "cats one two", metadata={"lang": "en"}),
        linked("de", "cats three four", metadata={"lang": "de"}),
    )
    hits = await search(network, "cats", {"minSimilarity": ANY}, filter={"metadata.lang": "en"})
    assert reached(hits).keys() == {"en"}


async def test_without_a_vector_it_says_so(network: Network) -> None:
    await index(network, linked("a", "cats", "b"), linked("b", "cats and dogs"))
    asked = {"collection": "docs", "query": "cats", "graph": {"minSimilarity": ANY}}
    answer = await network.call("search-query", **asked, mode="keyword")
    assert "graph" in answer["warnings"][0]
    assert {hit["source"] for hit in answer["results"]} == {"a", "b"}
    network.model.failure = down
    answer = await network.call("search-query", **asked)
    assert answer["degraded"]["mode"] == "keyword"
    assert any("graph" in warning for warning in answer["warnings"])


async def test_links_to_nowhere_and_what_comes_later(network: Network) -> None:
    await index(network, linked("start", "cats", "later", "never"))
    assert reached(await search(network, "cats", {"minSimilarity": ANY})) == {}
    await index(network, linked("later", "cats one two"))
    assert reached(await search(network, "cats", {"minSimilarity": ANY})).keys() == {"later"}


async def test_a_ring_ends(network: Network) -> None:
    await index(
        network,
        linked("a", "cats", "b"),
        linked("b", "dogs", "c"),
        linked("c", "frogs", "a"),
    )
    found = reached(await search(network, "cats", {"minSimilarity": ANY, "hops": 2}))
    assert found.keys() == {"b", "c"}
    assert (found["b"]["hops"], found["c"]["hops"]) == (1, 1)


@pytest.mark.engine
async def test_one_more_round_trip(network: Network) -> None:
    await index(network, linked("a", "cats", "b"), linked("b", "cats and dogs", "c"))
    for hops in (1, 2):
        network.calls.clear()
        await search(network, "cats", {"minSimilarity": ANY, "hops": hops})
        asked = [given.get("query", "") for _, given in network.calls]
        (walked,) = [query for query in asked if "LET beside" in query]
        assert f"LET linked_out{hops}" in walked


async def test_a_hub_is_walked_within_bounds(network: Network) -> None:
    many = [linked(f"m{n:03}", f"cats m{n} k{n} j{n}", "hub") for n in range(260)]
    for start in range(0, 260, 130):
        await index(network, *many[start : start + 130])
    await index(network, linked("hub", "cats"))
    hits = await search(network, "cats", {"minSimilarity": ANY, "hops": 2}, limit=300)
    assert len(hits) == 261
    assert 0 < len(reached(hits)) <= 50


async def test_several_collections_walk_each_by_itself(network: Network) -> None:
    for name in ("docs", "more"):
        await index(network, linked("a", "cats", "b"), linked("b", f"cats dogs {name}"), name=name)
    hits = await search(network, "cats", {"minSimilarity": ANY}, collection="*")
    assert sorted(hit["collection"] for hit in hits if "graph" in hit["matchedVia"]) == [
        "docs",
        "more",
    ]


async def test_pages_are_cut_from_one_list(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        await crowd(network, 30)
        await index(
            network,
            linked("start", "cats", "l1", "l2"),
            linked("l1", "cats one two three"),
            linked("l2", "cats four five six"),
        )
        for mode in ("semantic", "hybrid"):
            options = {"graph": {"minSimilarity": 0.1}, "mode": mode}
            whole = await search(network, "cats", limit=33, **options)
            pages = [
                hit["chunkId"]
                for offset in range(0, 33, 5)
                for hit in await search(network, "cats", limit=5, offset=offset, **options)
            ]
            assert pages == [hit["chunkId"] for hit in whole]


@pytest.mark.slow
@pytest.mark.engine
async def test_if_the_walk_fails_the_hits_stay(network: Network) -> None:
    await index(network, linked("a", "cats", "b"), linked("b", "cats and dogs"))

    def fault(tool: str, given: Any) -> Any:
        if tool == "arcade-query" and "LET beside" in given["query"]:
            return {"success": False, "error": "no"}
        return None

    network.faults.append(fault)
    answer = await network.call(
        "search-query", collection="docs", query="cats", graph={"minSimilarity": ANY}
    )
    assert len(answer["results"]) == 2
    assert "graph" in answer["warnings"][0]
