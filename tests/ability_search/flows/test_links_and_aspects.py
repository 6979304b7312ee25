"""Links between documents, and what is said of another document, as they are stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import PATIENCE, Network, Start, document
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    kind_chunks,
    links,
    record,
    rows,
    services_of,
    settled,
    types,
)

from ability_search.store.arcadedb.core import kind_type, link_type


def linked(source: str, *targets: str, **further: Any) -> dict[str, Any]:
    return document(source, f"Text of {source}.", links=[{"target": t} for t in targets], **further)


def derived(of: str, kind: str, content: str, **further: Any) -> dict[str, Any]:
    return document(f"{of}#{kind}", content, kind=kind, of=of, **further)


async def index(network: Network, *documents: dict[str, Any], **options: Any) -> Any:
    answer = await network.call(
        "search-index", collection="docs", documents=list(documents), **options
    )
    assert not answer["failed"]
    return answer


async def test_links_are_replaced_with_their_source(network: Network) -> None:
    await index(network, linked("a", "b", "c"), linked("b", "a"))
    assert [link[:2] for link in await links(network, "docs")] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
    ]
    await index(network, linked("a", "d"))
    assert [link[:2] for link in await links(network, "docs")] == [("a", "d"), ("b", "a")]
    await network.call("search-delete", collection="docs", source="b")
    assert [link[:2] for link in await links(network, "docs")] == [("a", "d")]
    await index(network, linked("a"))
    assert (await assert_consistent(network, "docs")).links == 0


async def test_of_equal_links_the_strongest_is_kept_and_none_to_itself(network: Network) -> None:
    given = [
        {"target": "b", "kind": "k", "weight": 0.2},
        {"target": "b", "kind": "k", "weight": 0.7},
        {"target": "b", "kind": "other"},
        {"target": "c", "weight": 0},
        {"target": "a"},
    ]
    await index(network, document("a", "Text.", links=given))
    assert await links(network, "docs") == [("a", "b", "k", 0.7), ("a", "b", "other", 1.0)]
    await assert_consistent(network, "docs")


@pytest.mark.engine
async def test_what_has_no_links_and_no_aspects_has_no_types_for_them(network: Network) -> None:
    await index(network, document("a", "Text."))
    assert {name.partition("_")[0] for name in await types(network)} == {"Chunk", "Source"}


async def test_reindexing_keeps_links_and_aspects(start: Start) -> None:
    async with start(SEARCH_DATABASE_GRACE_PERIOD="0") as network:
        long = " ".join(f"Proposition {n} about the guide." for n in range(40))
        await index(network, linked("guide", "b"), linked("b"), derived("guide", "summary", long))
        before, kept = await record(network, "docs"), await links(network, "docs")
        await network.call("search-reindex", collection="docs", maxTokens=32)
        after = await assert_consistent(network, "docs")
        assert (after.links, await links(network, "docs")) == (1, kept)
        assert after.kind_chunks > before.kind_chunks
        stored = await kind_chunks(network, "docs")
        assert "".join(row["lead"] + row["content"] for row in stored) == long
        assert {(row["aspectOf"], row["kind"]) for row in stored} == {("guide", "summary")}
        async with asyncio.timeout(PATIENCE):
            while len(await types(network)) > 4:
                pass


async def test_a_dropped_collection_leaves_nothing(network: Network) -> None:
    await index(network, linked("a", "b"), derived("a", "title", "The title"))
    assert len(await types(network)) == 4
    await network.call("search-delete", collection="docs")
    assert await types(network) == set()


@pytest.mark.engine
async def test_what_is_left_of_a_generation_is_swept(network: Network, tmp_path: Path) -> None:
    await index(network, linked("a", "b"), derived("a", "title", "The title"))
    collection = await record(network, "docs")
    long_ago = f"{collection.type[:-17]}{0:011x}abcdef"
    for command in (
        f"CREATE DOCUMENT TYPE `{link_type(long_ago)}` EXTENDS Link",
        f"CREATE VERTEX TYPE `{kind_type(long_ago)}` EXTENDS Chunk",
    ):
        await network.client.invoke(
            "arcade-command", {"database": network.settings.database.name, "command": command}
        )
    await settled(services_of(network, tmp_path), "docs")
    assert len(await types(network)) == 4


async def test_aspects_are_stored_apart_and_counted(network: Network) -> None:
    answer = await index(
        network,
        document("guide", "How to install."),
        derived("guide", "title", "Install"),
        derived("guide", "summary", "It is about installing."),
    )
    assert (answer["documents"], answer["chunks"]) == (3, 3)
    collection = await assert_consistent(network, "docs")
    assert (collection.sources, collection.chunks, collection.kind_chunks) == (3, 3, 2)
    assert [row["source"] for row in await chunks(network, "docs")] == ["guide"]
    again = await index(network, derived("guide", "title", "Install"))
    assert again["unchanged"] == 1
    await index(network, derived("guide", "title", "Setting up"))
    await assert_consistent(network, "docs")
    assert "Setting up" in {row["content"] for row in await kind_chunks(network, "docs")}


async def test_a_document_that_becomes_an_aspect_moves(network: Network) -> None:
    await index(network, document("a", "Text."), document("a#summary", "In short."))
    await index(network, derived("a", "summary", "In short."))
    assert (await assert_consistent(network, "docs")).kind_chunks == 1
    await index(network, document("a#summary", "In short."))
    assert (await assert_consistent(network, "docs")).kind_chunks == 0


async def test_aspects_go_with_their_document(network: Network) -> None:
    await index(
        network,
        document("a", "Text."),
        derived("a", "title", "A"),
        derived("a", "summary", "In short."),
        document("b", "Text."),
        derived("b", "title", "B"),
    )
    answer = await network.call("search-delete", collection="docs", source="a")
    assert answer["deleted"] == 3
    collection = await assert_consistent(network, "docs")
    assert (collection.sources, collection.kind_chunks) == (2, 1)


MAIL = [
    document("mail", "The invoice is attached."),
    document("mail/invoice", "Forty marbles.", of="mail", kind="attachment"),
    document("mail/invoice/scan", "A stamp in red ink.", of="mail/invoice"),
    derived("mail/invoice", "summary", "What was bought."),
    document("other", "Nothing is attached."),
    document("other/notes", "A stamp in blue ink.", of="other"),
]


async def sources(network: Network) -> set[str]:
    info = await network.call("search-collection-info", collection="docs")
    return set(info["sources"])


async def test_documents_of_a_document_are_found_by_themselves_and_deleted_with_it(
    network: Network,
) -> None:
    answer = await index(network, *MAIL, kinds=["title"])
    assert answer["added"] == len(MAIL)
    collection = await assert_consistent(network, "docs")
    assert (collection.sources, collection.kind_chunks) == (6, 6)
    found = await network.call("search-query", collection="docs", query="red stamp")
    assert found["results"][0]["source"] == "mail/invoice/scan"
    await network.call("search-delete", collection="docs", source="mail")
    assert await sources(network) == {"other", "other/notes"}
    collection = await assert_consistent(network, "docs")
    assert (collection.chunks, collection.kind_chunks) == (4, 2)


async def test_documents_of_a_document_that_has_become_blank_are_deleted(network: Network) -> None:
    await index(network, *MAIL)
    await network.call("search-index", collection="docs", documents=[document("mail", "\n")])
    assert await sources(network) == {"other", "other/notes"}
    await index(network, document("other", "Another text."))
    assert await sources(network) == {"other", "other/notes"}


async def test_documents_of_each_other_are_deleted_once(network: Network) -> None:
    await index(network, document("a", "One.", of="b"), document("b", "Two.", of="a"))
    answer = await network.call("search-delete", collection="docs", source="b")
    assert answer["deleted"] == 2
    assert await sources(network) == set()


async def test_a_rebuilt_collection_still_knows_the_documents_of_documents(
    network: Network,
) -> None:
    await index(network, *MAIL)
    await network.call("search-reindex", collection="docs", maxTokens=32)
    await network.call("search-delete", collection="docs", source="mail")
    assert await sources(network) == {"other", "other/notes"}
    await assert_consistent(network, "docs")


async def test_a_document_may_be_replaced_without_its_aspects(network: Network) -> None:
    await index(network, document("a", "Text."), derived("a", "title", "A"))
    await index(network, document("a", "Other text."))
    assert (await assert_consistent(network, "docs")).kind_chunks == 1


async def test_impossible_aspects_fail_alone(network: Network) -> None:
    answer = await network.call(
        "search-index",
        collection="docs",
        documents=[
            document("a", "Text."),
            document("b", "Text.", of="b"),
            document("c", "Text.", of="c", kind="title"),
        ],
    )
    assert [(item["source"], item["error"].partition(":")[0]) for item in answer["failed"]] == [
        ("b", "of"),
        ("c", "of"),
    ]
    assert answer["added"] == 1


async def test_an_aspect_neither_is_a_duplicate_nor_stands_for_one(network: Network) -> None:
    text = "The very same words."
    await index(network, derived("a", "summary", text), dedupThreshold=0.9)
    await index(network, document("a", text), dedupThreshold=0.9)
    await index(network, derived("b", "summary", text), document("b", "Else."), dedupThreshold=0.9)
    collection = await assert_consistent(network, "docs")
    assert (collection.duplicates, collection.kind_chunks, collection.chunks) == (0, 2, 4)


@pytest.mark.engine
async def test_aspects_too_large_for_a_message_are_staged(start: Start) -> None:
    async with start(SEARCH_DATABASE_WRITE_GROUP_BYTES="65536") as network:
        long = "\n\n".join(f"Proposition {n}. " + "word " * 60 for n in range(120))
        await index(network, document("a", "Text."), derived("a", "propositions", long))
        collection = await assert_consistent(network, "docs")
        assert collection.kind_chunks > 10
        assert await rows(network, "SELECT FROM Staging") == []


async def test_weights_and_graph_of_aspects_are_kept_up(start: Start, tmp_path: Path) -> None:
    async with start(SEARCH_SCAN_BELOW="10") as network:
        short = [derived(f"s{n}", "title", f"Name {n}") for n in range(60)]
        await index(network, *[document(f"s{n}", f"word{n} here") for n in range(60)], *short)
        services = services_of(network, tmp_path)
        await settled(services, "docs")
        collection = await assert_consistent(network, "docs")
        assert collection.kind_graph
        weighed = {row["averageLength"] for row in await kind_chunks(network, "docs")}
        assert weighed == {collection.average_length}
        assert collection.average_length < 20
