"""``fullText``: words in chosen fields take part in the order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES, Hits, hits_of, scores_of
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import record, rows

from ability_search.text.analyzer import analyzer_for

QUERY = "harbour storm"
DOCUMENTS: list[dict[str, Any]] = [
    {"title": "Harbour", "content": "ships and a harbour in a storm", "metadata": {}},
    {"title": "Weather", "content": "a storm", "metadata": {"tags": ["Harbours", "sea"]}},
    {"title": "Notes", "content": "nothing of it", "metadata": {"tags": ["storm harbour"]}},
    {"title": "Storms", "content": "wind", "metadata": {"place": {"name": "the old harbour"}}},
    {"title": "Empty", "content": "grass", "metadata": {"tags": [], "n": 7, "none": None}},
]


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    async with start() as network:
        documents = [{"source": f"d{n}", **each} for n, each in enumerate(DOCUMENTS)]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


async def search(network: Network, **options: Any) -> Hits:
    return await hits_of(network, QUERY, **{"prf": False} | options)


def normalized(*fields: str, average: float = 0.0) -> dict[str, float]:
    """1 - exp(-BM25 / information) of each document, where no field but these counts.

    A title counts as what it adds, four times, to a content of a collection of ``average`` length;
    the saturation of metadata does not depend on their length.
    """

    def weight_of(term: str, name: str, each: dict[str, Counter[str]]) -> float:
        if name != "title":
            return each[name][term] * 2.2 / (each[name][term] + 1.2)
        length = each["content"].total() + 4 * each["title"].total()
        least = 1.2 * (0.25 + 0.75 * length / average)
        before = each["content"][term]
        after = before + 4 * each["title"][term]
        return 2.2 * (after / (after + least) - before / (before + least))

    analyzer = analyzer_for()
    texts: list[dict[str, Counter[str]]] = []
    for each in DOCUMENTS:
        metadata = each["metadata"]
        found = {
            "title": each["title"],
            "content": each["content"],
            "metadata.tags": " ".join(map(str, metadata.get("tags") or [])),
            "metadata.place.name": metadata.get("place", {}).get("name", ""),
        }
        texts.append({name: Counter(analyzer.terms(text)) for name, text in found.items()})
    weights = {}
    for term in analyzer.query_terms(QUERY):
        frequency = max(
            sum(each[name][term] > 0 for each in texts) for name in {*fields, "content"}
        )
        weights[term] = math.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
    information = sum(weights.values())
    result = {}
    for n, each in enumerate(texts):
        raw = sum(
            weight * weight_of(term, name, each)
            for term, weight in weights.items()
            for name in fields
        )
        result[f"d{n}"] = 1 - math.exp(-raw / information)
    return result


async def test_the_score_in_the_chosen_fields_is_a_share_of_the_score(library: Network) -> None:
    stored = await record(library, "docs")
    for mode in ("semantic", "hybrid"):
        plain = scores_of(await search(library, mode=mode))
        assert len(plain) == len(DOCUMENTS)
        for fields in (["title"], ["tags"], ["metadata.tags", "title"], ["place.name", "tags"]):
            option = {"weight": 0.4, "fields": fields}
            own = normalized(
                *(name if name in ("title", *_METADATA) else f"metadata.{name}" for name in fields),
                average=stored.average_length,
            )
            found = scores_of(await search(library, mode=mode, fullText=option))
            assert found == pytest.approx(
                {source: 0.6 * plain[source] + 0.4 * own[source] for source in plain}, abs=1e-5
            ), (mode, fields)


_METADATA = ("metadata.tags", "metadata.place.name")


async def test_it_finds_what_other_arms_do_not(library: Network) -> None:
    plain = await search(library, mode="keyword")
    assert {hit["source"] for hit in plain} == {"d0", "d1", "d3"}
    hits = await search(
        library, mode="keyword", fullText={"weight": 0.9, "fields": ["tags"]}, explain=True
    )
    assert {hit["source"] for hit in hits} == {"d0", "d1", "d2", "d3"}
    assert hits[0]["source"] == "d2"
    assert hits[0]["matchedVia"] == ["fullText"]
    told = hits[0]["explain"]["fullText"]
    assert told["after"] == hits[0]["score"]
    assert told["bm25"] == hits[0]["scores"]["fullText"] > 0
    assert told["normalized"] == pytest.approx(normalized("metadata.tags")["d2"], abs=1e-5)
    (other,) = (hit for hit in hits if hit["source"] == "d0")
    assert "fullText" not in other["scores"]


async def test_it_reorders_the_list(library: Network) -> None:
    first = (await search(library))[0]["source"]
    assert first == "d0"
    hits = await search(library, fullText={"weight": 1, "fields": ["metadata.tags"]})
    assert [hit["source"] for hit in hits[:2]] == ["d2", "d1"]
    assert hits[0]["score"] == pytest.approx(normalized("metadata.tags")["d2"], abs=1e-5)


async def test_switched_off_or_without_weight_nothing_changes(library: Network) -> None:
    for mode in MODES:
        plain = await search(library, mode=mode, explain=True)
        for option in ({"weight": 0, "fields": ["tags"]}, {"enabled": False, "weight": 1}):
            assert await search(library, mode=mode, explain=True, fullText=option) == plain


async def test_filters_and_exclusions_hold(library: Network) -> None:
    option = {"weight": 0.9, "fields": ["tags", "title"]}
    for mode in MODES:
        hits = await search(library, mode=mode, fullText=option, excludeSources=["d2"])
        assert hits and "d2" not in scores_of(hits)
        hits = await search(library, mode=mode, fullText=option, filter={"title": "Notes"})
        assert list(scores_of(hits)) == ["d2"]


async def test_another_language_is_refused_by_name(library: Network) -> None:
    asked = {"collection": "docs", "query": "x"}
    for language in ("english", "English"):
        await library.call("search-query", **asked, fullText={"language": language})
    for language in ("german", "klingon"):
        failed = await library.refused("search-query", **asked, fullText={"language": language})
        assert failed["code"] == "invalid_input"
        assert "fullText.language" in failed["error"]
        assert "english" in failed["error"]


async def test_fields_without_words_are_refused(library: Network) -> None:
    failed = await library.refused(
        "search-query", collection="docs", query="x", fullText={"fields": ["title", "createdAt"]}
    )
    assert failed["code"] == "invalid_input"
    assert "fullText.fields.1" in failed["error"]


async def test_a_collection_in_another_language_is_named(library: Network) -> None:
    await library.call(
        "search-index",
        collection="deutsch",
        language="german",
        documents=[document("h", "Sturm", metadata={"tags": "Häfen storm"})],
    )
    option = {"weight": 0.9, "fields": ["tags"]}
    hits = await search(library, collection="*", fullText=option)
    assert {hit["collection"] for hit in hits if "fullText" in hit["matchedVia"]} == {
        "docs",
        "deutsch",
    }
    answer = await library.call(
        "search-query", collection="*", query=QUERY, fullText={**option, "language": "german"}
    )
    assert {hit["collection"] for hit in answer["results"]} == {"deutsch"}
    (warning,) = answer["warnings"]
    assert warning.startswith("docs: fullText.language")


async def test_reindexing_and_replacing_keep_what_metadata_says(library: Network) -> None:
    option = {"weight": 0.9, "fields": ["tags"]}
    before = await search(library, mode="keyword", fullText=option)
    await library.call("search-reindex", collection="docs", maxTokens=400)
    after = await search(library, mode="keyword", fullText=option)
    assert scores_of(after) == pytest.approx(scores_of(before))
    await library.call(
        "search-index",
        collection="docs",
        documents=[{"source": "d2", **DOCUMENTS[2], "metadata": {"tags": ["calm"]}}],
    )
    assert "d2" not in scores_of(await search(library, mode="keyword", fullText=option))


async def test_every_candidate_has_its_score_however_deep_one_looks(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [
            document(
                f"d{n:02}",
                f"{'cats ' * (50 - n)}and number {n}",
                metadata={"tags": "cats " * (1 + n * 7 % 40)},
            )
            for n in range(40)
        ]
        await network.call("search-index", collection="docs", documents=documents)
        option = {"weight": 0.5, "fields": ["tags"]}
        for mode in MODES:
            asked = {"query": "cats", "mode": mode, "fullText": option}
            whole = await search(network, **asked, limit=40)
            assert len(whole) == 40
            pages = [await search(network, **asked, limit=5, offset=n) for n in range(0, 40, 5)]
            assert scores_of([hit for page in pages for hit in page]) == scores_of(whole)


@pytest.mark.engine
async def test_duplicates_come_back_with_what_their_metadata_says(start: Start) -> None:
    async with start() as network:
        for source, tags in (("first", "sea"), ("second", "mountain")):
            await network.call(
                "search-index",
                collection="docs",
                dedupThreshold=0.99,
                documents=[
                    {"source": source, "title": "", "content": "same", "metadata": {"tags": tags}}
                ],
            )
        assert len(await rows(network, "SELECT FROM Chunk WHERE duplicateOf IS NOT NULL")) == 1
        await network.call("search-delete", collection="docs", source="first")
        hits = await search(
            network, query="mountain", mode="keyword", fullText={"weight": 1, "fields": ["tags"]}
        )
        assert [hit["source"] for hit in hits] == ["second"]
