"""``extended``: documents found by their titles, summaries, keywords and propositions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES, hits_of
from tests.ability_search.flows.conftest import Network, Start, document, down, word_vector
from tests.ability_search.flows.stored import second_worker


def derived(of: str, kind: str, content: str, **further: Any) -> dict[str, Any]:
    return document(f"{of}#{kind}", content, kind=kind, of=of, **({"title": ""} | further))


DOCUMENTS = [
    document(
        "guide",
        "# Prepare\n\nMake room on the shelf.\n\n# Assemble\n\nTurn the screws until tight.",
        title="",
        metadata={"lang": "en"},
    ),
    document("other", "Water the plants weekly.", title="", metadata={"lang": "en"}),
    document("paint", "Paint the shelf white.", title="", metadata={"lang": "de"}),
    derived("guide", "summary", "Furniture assembly for beginners.", metadata={"lang": "en"}),
    derived("guide", "keywords", "furniture wardrobe cupboard", metadata={"lang": "de"}),
    derived("other", "summary", "Gardening for beginners.", metadata={"lang": "en"}),
]


async def index(network: Network, documents: list[dict[str, Any]], name: str = "docs") -> None:
    answer = await network.call(
        "search-index", collection=name, documents=documents, chunkStrategy="markdown-headers"
    )
    assert not answer["failed"]


@pytest.fixture
async def library(network: Network) -> AsyncIterator[Network]:
    await index(network, DOCUMENTS)
    yield network


@pytest.mark.parametrize("mode", MODES)
async def test_without_the_option_nothing_said_of_documents_is_found(
    library: Network, mode: str
) -> None:
    for query in ("furniture wardrobe cupboard", "gardening for beginners"):
        hits = await hits_of(library, query, mode=mode)
        assert not any("#" in hit["source"] for hit in hits)
    assert await hits_of(library, "wardrobe", mode="keyword") == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_hit_on_a_kind_returns_the_document(library: Network, mode: str) -> None:
    hits = await hits_of(library, "furniture assembly beginners", mode=mode, extended=["summary"])
    first = hits[0]
    assert first["source"] == "guide"
    assert first["matchedVia"] == ["summary"]
    assert first["scores"]["summary"] > 0
    assert {hit["source"] for hit in hits} <= {"guide", "other"}


async def test_the_score_is_that_of_the_kind_and_explained(library: Network) -> None:
    query = "furniture assembly for beginners"
    (hit, *_) = await hits_of(
        library, query, mode="semantic", extended=["summary", "keywords"], explain=True
    )
    said = word_vector("Furniture assembly for beginners.")
    asked = word_vector(query)
    cosine = float(said @ asked / (sum(said**2) * sum(asked**2)) ** 0.5)
    assert hit["score"] == pytest.approx(cosine, abs=1e-4)
    assert hit["scores"]["summary"] == pytest.approx(cosine, abs=1e-4)
    assert hit["scores"]["semantic"] < cosine
    assert hit["explain"]["extended"] == {
        "chunkId": "docs:guide#summary:0",
        "kind": "summary",
        "score": hit["score"],
    }


async def test_it_returns_the_chunk_nearest_to_the_query(library: Network) -> None:
    for mode in MODES:
        hits = await hits_of(
            library, "beginners furniture turn screws tight", mode=mode, extended=["summary"]
        )
        (own,) = [hit for hit in hits if hit["source"] == "guide"]
        assert own["content"].startswith("# Assemble")


async def test_in_keyword_mode_a_document_without_the_words_shows_its_first_chunk(
    library: Network,
) -> None:
    (hit,) = await hits_of(library, "wardrobe", mode="keyword", extended=["keywords"])
    assert hit["chunkId"] == "docs:guide:0"


async def test_with_documents_both_count_and_the_better_one_decides(library: Network) -> None:
    for mode in MODES:
        query = "furniture shelf room"
        plain = {hit["chunkId"]: hit for hit in await hits_of(library, query, mode=mode)}
        by_kind = {
            hit["chunkId"]: hit
            for hit in await hits_of(library, query, mode=mode, extended=["summary", "keywords"])
        }
        both = await hits_of(
            library, query, mode=mode, extended=["summary", "keywords", "documents"]
        )
        assert {hit["chunkId"] for hit in both} == plain.keys() | by_kind.keys()
        if mode == "semantic":
            for hit in both:
                each = [found.get(hit["chunkId"]) for found in (plain, by_kind)]
                assert hit["score"] == max(item["score"] for item in each if item)


async def test_documents_alone_change_nothing(library: Network) -> None:
    for mode in MODES:
        plain = await hits_of(library, "shelf", mode=mode)
        assert await hits_of(library, "shelf", mode=mode, extended=["documents"]) == plain


async def test_excluded_sources_exclude_the_document_and_what_is_said_of_it(
    library: Network,
) -> None:
    asked = {"query": "furniture assembly beginners", "extended": ["summary"], "explain": True}
    for mode in MODES:
        for glob in ("guide", "guide#*", "guide*"):
            answer = await library.call(
                "search-query", collection="docs", mode=mode, excludeSources=[glob], **asked
            )
            assert "guide" not in str(answer["results"])


async def test_filters_hold_for_the_document_and_for_what_is_said_of_it(library: Network) -> None:
    found = await hits_of(
        library, "furniture", mode="keyword", extended=["keywords"], filter={"metadata.lang": "en"}
    )
    assert found == []
    found = await hits_of(
        library, "furniture", mode="keyword", extended=["summary"], filter={"metadata.lang": "en"}
    )
    assert [hit["source"] for hit in found] == ["guide"]
    await index(library, [derived("paint", "summary", "Decoration", metadata={"lang": "en"})])
    found = await hits_of(
        library, "decoration", mode="keyword", extended=["summary"], filter={"metadata.lang": "en"}
    )
    assert found == []


async def test_what_is_said_of_no_document_is_not_found(library: Network) -> None:
    await index(library, [derived("nowhere", "summary", "Unicorns everywhere")])
    assert await hits_of(library, "unicorns", mode="keyword", extended=["summary"]) == []
    await index(library, [document("nowhere", "Horses.")])
    (hit,) = await hits_of(library, "unicorns", mode="keyword", extended=["summary"])
    assert hit["content"] == "Horses."


async def test_a_summary_of_no_other_document_is_found_itself(library: Network) -> None:
    await index(library, [document("digest", "Unicorns in short.", kind="summary")])
    for extended in (["summary"], ["summary", "documents"], []):
        (hit,) = await hits_of(library, "unicorns", mode="keyword", extended=extended)
        assert hit["source"] == "digest"
    assert await hits_of(library, "unicorns", mode="keyword", extended=["title"]) == []


@pytest.mark.engine
async def test_it_takes_one_more_look_and_no_more_embedding(library: Network) -> None:
    for extended, looks in (([], 0), (["documents"], 0), (["summary", "documents"], 1)):
        library.calls.clear()
        await hits_of(library, "furniture", extended=extended)
        asked = [given.get("query", "") for _, given in library.calls]
        assert sum("'best': $best" in query for query in asked) == looks
        assert library.hops().count("create-embedding") == 1


async def test_without_the_embedder_it_is_by_words(library: Network) -> None:
    library.model.failure = down
    answer = await library.call(
        "search-query", collection="docs", query="wardrobe", extended=["keywords"]
    )
    assert answer["degraded"]["mode"] == "keyword"
    assert [hit["source"] for hit in answer["results"]] == ["guide"]


async def test_min_score_is_met_by_what_was_said(library: Network) -> None:
    asked = {"query": "furniture assembly for beginners", "extended": ["summary"]}
    (hit,) = await hits_of(library, mode="semantic", minScore=0.9, **asked)
    assert hit["source"] == "guide"
    assert hit["scores"]["semantic"] < 0.9


async def test_a_document_with_many_propositions_leaves_room_for_others(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [document(f"d{n}", f"Text {n}.", title="") for n in range(4)]
        said = [
            derived("d0", "propositions", "\n\n".join(f"# P{n}\n\ncats" for n in range(40))),
            *(derived(f"d{n}", "summary", f"cats and dogs {n}") for n in (1, 2, 3)),
        ]
        await index(network, documents + said)
        for mode in MODES:
            hits = await hits_of(
                network, "cats", mode=mode, extended=["propositions", "summary"], limit=4
            )
            assert {hit["source"] for hit in hits} == {"d0", "d1", "d2", "d3"}


async def test_pages_are_cut_from_one_list(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [document(f"d{n}", f"dogs {'x ' * n}", title="") for n in range(20)]
        said = [
            derived(f"d{n}", "summary", f"cats {'y ' * (n % 7)}", title=f"T{n}") for n in range(20)
        ]
        await index(network, documents + said)
        for mode in MODES:
            options = {"mode": mode, "extended": ["summary", "documents"]}
            whole = await hits_of(network, "cats dogs", limit=20, **options)
            pages = [
                hit
                for offset in range(0, 20, 4)
                for hit in await hits_of(network, "cats dogs", limit=4, offset=offset, **options)
            ]
            assert [hit["chunkId"] for hit in pages] == [hit["chunkId"] for hit in whole]
            assert len(whole) == 20


async def test_over_several_collections(library: Network) -> None:
    await index(library, [document("x", "Nothing."), derived("x", "summary", "furniture")], "more")
    await index(library, [document("y", "Nothing at all.")], "plain")
    hits = await library.call(
        "search-query", collection="*", query="furniture", mode="keyword", extended=["summary"]
    )
    assert {hit["collection"] for hit in hits["results"]} == {"docs", "more"}


async def test_a_worker_that_knew_of_no_aspects_learns_of_them(
    network: Network, tmp_path: Any
) -> None:
    await index(network, [document("a", "Text.")])
    await hits_of(network, "text", mode="keyword")
    async with second_worker(network, tmp_path) as other:
        await network.client.invoke(
            "search-index",
            {"collection": "docs", "documents": [derived("a", "summary", "unicorns")]},
            timeout=60,
            target_agent=other.agent_id,
        )
        answer = await network.client.invoke(
            "search-query",
            {
                "collection": "docs",
                "query": "unicorns",
                "mode": "keyword",
                "extended": ["summary"],
            },
            timeout=60,
            target_agent=network.worker.agent_id,
        )
    assert [hit["source"] for hit in answer["results"]] == ["a"]


async def test_rules_see_the_document(library: Network) -> None:
    rules = {"source": {"weight": 1.0, "rules": {"priority": "other"}}}
    hits = await hits_of(
        library, "beginners", mode="keyword", extended=["summary"], rerank=rules, explain=True
    )
    assert [hit["source"] for hit in hits] == ["other", "guide"]


@pytest.mark.engine
async def test_if_the_look_fails_the_chunks_are_still_found(library: Network) -> None:
    def fault(tool: str, given: Any) -> Any:
        if tool == "arcade-query" and "'best'" in given["query"]:
            return {"success": False, "error": "no"}
        return None

    library.faults.append(fault)
    answer = await library.call(
        "search-query", collection="docs", query="shelf", extended=["summary", "documents"]
    )
    assert "guide" in {hit["source"] for hit in answer["results"]}
    assert "extended: kinds are ignored" in answer["warnings"][0]
