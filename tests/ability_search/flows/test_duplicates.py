"""Near-duplicates: found once, counted, never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    record,
    rows,
    services_of,
    settled,
)

FOX = "the quick brown fox jumps over the lazy dog near the river bank at dawn every day"
NEAR_FOX = f"{FOX} again"
SHIP = "seven old sailors repaired their wooden ship before autumn storms reached harbour"


def titled(source: str, content: str, **further: Any) -> dict[str, Any]:
    """A document whose vector its content alone decides."""
    return document(source, content, **{"title": "note", **further})


async def indexed(network: Network, *documents: dict[str, Any], **options: Any) -> Any:
    return await network.call(
        "search-index",
        collection="docs",
        documents=list(documents),
        **{"dedupThreshold": 0.95, **options},
    )


async def found(network: Network, query: str = "brown fox") -> dict[str, set[str]]:
    """The sources found in each mode; none may come twice."""
    hits = {}
    for mode in ("semantic", "keyword", "hybrid"):
        answer = await network.call(
            "search-query", collection="docs", query=query, mode=mode, limit=50
        )
        ids = [hit["chunkId"] for hit in answer["results"]]
        assert len(ids) == len(set(ids))
        hits[mode] = {hit["source"] for hit in answer["results"]}
    return hits


def everywhere(*sources: str) -> dict[str, set[str]]:
    return dict.fromkeys(("semantic", "keyword", "hybrid"), set(sources))


async def test_a_text_in_two_sources_of_one_call_is_found_once(network: Network) -> None:
    report = await indexed(network, titled("a", FOX), titled("b", FOX))
    assert (report["added"], report["chunks"], report["deduplicated"]) == (2, 2, 1)
    assert await found(network) == everywhere("a")
    await assert_consistent(network, "docs")


async def test_a_text_that_a_later_call_brings_again_is_found_once(network: Network) -> None:
    assert (await indexed(network, titled("a", FOX)))["deduplicated"] == 0
    report = await indexed(network, titled("b", NEAR_FOX), titled("c", SHIP))
    assert (report["added"], report["chunks"], report["deduplicated"]) == (2, 2, 1)
    fox = await found(network)
    assert (fox["semantic"], fox["keyword"], fox["hybrid"]) == ({"a", "c"}, {"a"}, {"a", "c"})
    duplicate = next(row for row in await chunks(network, "docs") if row["source"] == "b")
    assert duplicate["duplicateOf"] == "docs:a:0"
    assert duplicate["content"] == NEAR_FOX
    await assert_consistent(network, "docs")


async def test_groups_of_one_call_see_what_the_earlier_ones_stored(start: Start) -> None:
    async with start(SEARCH_WRITE_GROUP_CHUNKS="1") as network:
        report = await indexed(network, *(titled(name, FOX) for name in "abc"))
        assert (report["added"], report["deduplicated"]) == (3, 2)
        (standing,) = (await found(network))["hybrid"]
        assert {row.get("duplicateOf") for row in await chunks(network, "docs")} == {
            None,
            f"docs:{standing}:0",
        }
        await assert_consistent(network, "docs")


async def test_a_passage_repeated_within_a_source_is_found_once(network: Network) -> None:
    text = f"{FOX}.\n\n{SHIP}.\n\n{FOX}."
    report = await indexed(network, titled("a", text), chunkStrategy="paragraph", maxTokens=24)
    assert (report["chunks"], report["deduplicated"]) == (3, 1)
    answer = await network.call("search-query", collection="docs", query="brown fox", limit=9)
    assert sorted(hit["chunkId"] for hit in answer["results"]) == ["docs:a:0", "docs:a:1"]
    await assert_consistent(network, "docs")


@pytest.mark.parametrize(("threshold", "deduplicated"), [(1.0, 1), (0.95, 2), (None, 0)])
async def test_the_threshold_decides_what_is_a_duplicate(
    network: Network, threshold: float | None, deduplicated: int
) -> None:
    documents = [titled("a", FOX), titled("b", FOX), titled("c", NEAR_FOX), titled("d", SHIP)]
    for each in documents:
        await indexed(network, each, dedupThreshold=threshold)
    assert (await record(network, "docs")).duplicates == deduplicated
    await assert_consistent(network, "docs")


@pytest.mark.engine
async def test_the_graph_finds_duplicates_as_the_scan_does(start: Start, tmp_path: Path) -> None:
    async with start(SEARCH_SCAN_BELOW="20") as network:
        texts = [f"fox{n} tree{n * 3} house{n * 7} river{n * 11} {SHIP[n:]}" for n in range(40)]
        await indexed(
            network, *(titled(f"s{n}", text) for n, text in enumerate(texts)), dedupThreshold=None
        )
        await settled(services_of(network, tmp_path), "docs")
        assert (await record(network, "docs")).graph
        await indexed(network, titled("first", "nothing of the kind"))
        network.hops()
        report = await indexed(
            network, *(titled(f"t{n}", text) for n, text in enumerate(texts)), dedupThreshold=1.0
        )
        assert "arcade-index-search" in network.hops()
        assert report["deduplicated"] == 40
        await assert_consistent(network, "docs")


async def test_one_duplicate_stands_in_for_the_others_of_a_source_that_is_deleted(
    network: Network,
) -> None:
    await indexed(network, titled("a", FOX))
    await indexed(network, titled("b", FOX), titled("c", NEAR_FOX))
    assert await found(network) == everywhere("a")
    deleted = await network.call("search-delete", collection="docs", source="a")
    assert deleted["deleted"] == 1
    assert await found(network) == everywhere("b")
    collection = await assert_consistent(network, "docs")
    assert (collection.chunks, collection.duplicates) == (2, 1)


async def test_replacing_the_source_that_stands_makes_its_duplicate_findable(
    network: Network,
) -> None:
    await indexed(network, titled("a", FOX))
    await indexed(network, titled("b", FOX))
    await indexed(network, titled("a", SHIP), dedupThreshold=None)
    assert (await found(network))["keyword"] == {"b"}
    assert (await found(network, "wooden ship"))["keyword"] == {"a"}
    collection = await assert_consistent(network, "docs")
    assert (collection.chunks, collection.duplicates) == (2, 0)


async def test_replacing_a_duplicate_leaves_what_stands(network: Network) -> None:
    await indexed(network, titled("a", FOX))
    await indexed(network, titled("b", FOX))
    report = await indexed(network, titled("b", SHIP))
    assert (report["updated"], report["deduplicated"]) == (1, 0)
    assert (await found(network))["keyword"] == {"a"}
    assert (await found(network, "wooden ship"))["keyword"] == {"b"}
    assert (await assert_consistent(network, "docs")).duplicates == 0


async def test_a_source_is_no_duplicate_of_what_it_replaces(network: Network) -> None:
    await indexed(network, titled("a", FOX), titled("b", FOX))
    for _ in range(2):
        report = await indexed(network, titled("a", FOX), titled("b", FOX), force=True)
        assert (report["updated"], report["deduplicated"]) == (2, 1)
        assert await found(network) == everywhere("a")
        assert (await assert_consistent(network, "docs")).duplicates == 1
    report = await indexed(network, titled("a", NEAR_FOX))
    assert (report["updated"], report["deduplicated"]) == (1, 0)
    assert await found(network) == everywhere("a")
    await assert_consistent(network, "docs")


async def test_the_same_call_again_changes_nothing(network: Network) -> None:
    documents = [titled("a", FOX), titled("b", FOX)]
    await indexed(network, *documents)
    for threshold in (0.95, 0.5, None):
        report = await indexed(network, *documents, dedupThreshold=threshold)
        assert (report["unchanged"], report["chunks"], report["deduplicated"]) == (2, 0, 0)
    assert (await record(network, "docs")).duplicates == 1


@pytest.mark.engine
async def test_a_stand_in_deleted_while_a_duplicate_is_on_its_way_loses_no_text(
    network: Network,
) -> None:
    await indexed(network, titled("a", FOX))
    kind = (await record(network, "docs")).type
    deleted: list[str] = []

    def vanish(tool: str, tool_input: Any) -> None:
        if tool == "arcade-command" and "duplicateOf" in str(tool_input) and not deleted:
            deleted.append(kind)
            tool_input["command"] = (
                f"BEGIN; DELETE FROM `{kind}` WHERE source = 'a'; COMMIT; {tool_input['command']}"
            )

    network.faults.append(vanish)
    report = await indexed(network, titled("b", FOX))
    assert deleted
    assert (report["added"], report["deduplicated"]) == (1, 0)
    assert await found(network) == everywhere("b")


@pytest.mark.slow
@pytest.mark.engine
async def test_chunks_staged_in_parts_are_set_aside_too(start: Start) -> None:
    async with start(SEARCH_WRITE_GROUP_BYTES="65536") as network:
        words = [f"{FOX} {SHIP} number{n} item{n * 13} thing{n * 29}." for n in range(120)]
        text = "\n\n".join(words)
        options = {"chunkStrategy": "paragraph", "maxTokens": 48, "dedupThreshold": 1.0}
        first = await indexed(network, titled("a", text), **options)
        second = await indexed(network, titled("b", text), **options)
        assert second["chunks"] == second["deduplicated"] == first["chunks"] > 50
        await assert_consistent(network, "docs")
        await network.call("search-delete", collection="docs", source="a")
        assert "b" in (await found(network, "number7"))["keyword"]
        await assert_consistent(network, "docs")
        assert not await rows(network, "SELECT FROM Staging")


async def test_collection_info_tells_how_much_is_embedded(network: Network) -> None:
    await indexed(network, titled("a", FOX), titled("b", FOX), titled("c", SHIP))
    info = await network.call("search-collection-info", collection="docs")
    assert (info["chunks"], info["sourceCount"], info["embeddedPercent"]) == (3, 3, 66.67)
    await network.call("search-delete", collection="docs", source="a")
    info = await network.call("search-collection-info", collection="docs")
    assert (info["chunks"], info["embeddedPercent"]) == (2, 100.0)


async def test_filters_find_the_duplicates_of_what_they_exclude(network: Network) -> None:
    await indexed(network, titled("a", FOX, metadata={"lang": "en"}), titled("s", SHIP))
    await indexed(network, titled("b", FOX, metadata={"lang": "de"}))
    for mode in ("semantic", "keyword", "hybrid"):
        for tongue, sources in (("en", ["a"]), ("de", ["b"])):
            answer = await network.call(
                "search-query",
                collection="docs",
                query="fox",
                mode=mode,
                filter={"metadata.lang": tongue},
            )
            assert [hit["source"] for hit in answer["results"]] == sources
    similar = await network.call("search-similar", collection="docs", chunkId="docs:b:0")
    assert [hit["source"] for hit in similar["results"]] == ["a", "s"]
    assert similar["results"][0]["score"] == pytest.approx(1.0, abs=1e-5)


async def test_reindexing_finds_the_duplicates_again(network: Network) -> None:
    text = f"{FOX}.\n\n{SHIP}.\n\n{FOX}."
    await indexed(network, titled("a", text), chunkStrategy="paragraph", maxTokens=24)
    await indexed(network, titled("b", NEAR_FOX))
    assert (await record(network, "docs")).duplicates == 2
    await network.call("search-reindex", collection="docs")
    collection = await assert_consistent(network, "docs")
    assert (collection.chunks, collection.duplicates) == (4, 2)
    contents = [row["content"] for row in await chunks(network, "docs")]
    assert contents == [f"{FOX}.", f"{SHIP}.", f"{FOX}.", NEAR_FOX]
    assert (await found(network))["keyword"] == {"a"}


async def test_a_cleared_collection_keeps_its_threshold(network: Network) -> None:
    await indexed(network, titled("a", FOX), dedupThreshold=0.95)
    await network.call("search-reindex", collection="docs")
    await network.call("search-reindex", collection="docs", clear=True)
    again = await indexed(network, titled("a", FOX), titled("b", NEAR_FOX), dedupThreshold=None)
    assert again["deduplicated"] == 1
    strict = await indexed(network, titled("c", f"{FOX} {FOX} anew"), dedupThreshold=1.0)
    assert strict["deduplicated"] == 0
    assert (await record(network, "docs")).dedup_threshold == 0.95
    await assert_consistent(network, "docs")


async def test_reindexing_keeps_the_stand_in_of_a_later_source(network: Network) -> None:
    await indexed(network, titled("z", FOX), dedupThreshold=None)
    await indexed(network, titled("a", FOX))
    await network.call("search-reindex", collection="docs")
    assert (await assert_consistent(network, "docs")).duplicates == 1
    assert await found(network) == everywhere("z")


@pytest.mark.engine
async def test_weights_are_renewed_of_duplicates_too(network: Network, tmp_path: Path) -> None:
    services = services_of(network, tmp_path)
    await indexed(network, titled("a", FOX), titled("b", FOX))
    collection = await services.ports.registry.reload("docs")
    assert collection is not None
    await services.ports.registry.update(collection, average_length=3 * collection.average_length)
    await settled(services, "docs")
    standing, duplicate = await chunks(network, "docs")
    assert standing["averageLength"] == duplicate["averageLength"] == 3 * collection.average_length
    assert standing["weights"] == duplicate["spareWeights"]
    await assert_consistent(network, "docs")


async def test_a_collection_with_duplicates_can_be_deleted(network: Network) -> None:
    await indexed(network, titled("a", FOX), titled("b", FOX))
    assert (await network.call("search-delete", collection="docs"))["deleted"] == 2
    report = await indexed(network, titled("b", FOX))
    assert (report["added"], report["deduplicated"]) == (1, 0)
