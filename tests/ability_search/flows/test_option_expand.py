"""``expand``: the text around hits, and one hit for several side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES, hits_of
from tests.ability_search.flows.conftest import Network, Start

PARAGRAPHS = [
    "Alpha beta gamma. The lighthouse stands on the cliff.",
    "Cats sleep on the wall all day long, and nobody minds.",
    "Cats hunt mice in the barn at night when it rains.",
    "Dogs bark at the moon whenever the wind turns north.",
    "Horses run over the hills towards the river mouth.",
    "Cats and kittens play with wool beside the oven.",
    "Omega psi chi. Nothing more is said in this text.",
]
TEXT = "\n\n".join(PARAGRAPHS)
SECTIONS = "\n\n".join(
    f"# {name}\n\n"
    + "\n\n".join(f"{text} {name.lower()} {n}." for n, text in enumerate(PARAGRAPHS))
    for name in ("First", "Second")
)


async def index(network: Network, *documents: dict[str, Any], **options: Any) -> None:
    answer = await network.call(
        "search-index",
        collection=options.pop("name", "docs"),
        documents=list(documents),
        **{"chunkStrategy": "paragraph", "maxTokens": 16, **options},
    )
    assert not answer["failed"]


def text(source: str, content: str = TEXT, **further: Any) -> dict[str, Any]:
    return {"source": source, "title": "", "content": content, **further}


@pytest.fixture
async def library(network: Network) -> AsyncIterator[Network]:
    await index(network, text("a"))
    yield network


def spanned(hit: dict[str, Any], whole: str) -> str:
    """The lines of a text that a context says it has."""
    lines = whole.split("\n")
    context = hit["context"]
    return "\n".join(lines[context["startLine"] - 1 : context["endLine"]])


@pytest.mark.parametrize("mode", MODES)
async def test_neighbours_come_along(library: Network, mode: str) -> None:
    (plain,) = await hits_of(library, "dogs bark moon", mode=mode, limit=1)
    (hit,) = await hits_of(library, "dogs bark moon", mode=mode, limit=1, expand="neighbors")
    context = hit.pop("context")
    assert hit == plain
    assert context["content"] == "\n\n".join(PARAGRAPHS[2:5])
    assert context["chunks"] == ["docs:a:2", "docs:a:3", "docs:a:4"]
    assert (context["startLine"], context["endLine"]) == (5, 9)


async def test_as_many_as_are_asked_for_and_there(library: Network) -> None:
    for window, first, last in ((2, 0, 4), (3, 0, 5), (10, 0, 6)):
        (hit, *_) = await hits_of(
            library, "cats hunt barn rains", expand={"window": window}, mode="semantic", limit=1
        )
        assert hit["chunkIndex"] == 2
        assert hit["context"]["content"] == "\n\n".join(PARAGRAPHS[first : last + 1])


async def test_without_the_option_there_is_no_context(library: Network) -> None:
    for hit in await hits_of(library):
        assert "context" not in hit
        assert "merged" not in hit


@pytest.mark.parametrize("mode", MODES)
async def test_hits_side_by_side_are_one(library: Network, mode: str) -> None:
    plain = await hits_of(library, "cats", mode=mode, limit=3)
    assert {hit["chunkIndex"] for hit in plain} == {1, 2, 5}
    hits = await hits_of(library, "cats", mode=mode, limit=3, expand="neighbors")
    best = [hit for hit in hits if hit["chunkIndex"] in (1, 2)]
    assert len(best) == 1
    other = 3 - best[0]["chunkIndex"]
    assert best[0]["merged"][0] == f"docs:a:{other}"
    assert best[0]["score"] == max(hit["score"] for hit in plain if hit["chunkIndex"] in (1, 2))
    assert set(best[0]["context"]["chunks"]) >= {f"docs:a:{n}" for n in range(4)}
    assert PARAGRAPHS[1] in best[0]["context"]["content"]
    assert PARAGRAPHS[2] in best[0]["context"]["content"]


async def test_what_would_not_be_shown_is_not_merged(library: Network) -> None:
    (hit,) = await hits_of(library, "cats", limit=1, expand="neighbors")
    assert "merged" not in hit
    assert len(hit["context"]["chunks"]) == 3


async def test_the_page_is_filled_again(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        many = "\n\n".join(f"Cats number {n} sit on the long red wall again." for n in range(40))
        await index(
            network, text("many", many), *(text(f"s{n}", f"Cat {n} and dog.") for n in range(9))
        )
        for mode in MODES:
            hits = await hits_of(network, "cats", mode=mode, limit=8, expand="neighbors")
            assert len(hits) == 8
            shown = [chunk for hit in hits for chunk in (hit["chunkId"], *hit.get("merged", ()))]
            assert len(shown) == len(set(shown))


async def test_pages_are_cut_from_one_list(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        for n in range(8):
            await index(network, text(f"d{n}", TEXT.replace("Cats", f"Cats {'x ' * n}")))
        for mode in MODES:
            asked = {"mode": mode, "expand": {"window": 1}}
            whole = await hits_of(network, **asked, limit=16)
            pages = [
                hit["chunkId"]
                for offset in range(0, 16, 4)
                for hit in await hits_of(network, **asked, limit=4, offset=offset)
            ]
            assert pages == [hit["chunkId"] for hit in whole]


async def test_the_whole_section_and_no_more(network: Network) -> None:
    await index(network, text("a", SECTIONS), chunkStrategy="markdown-headers", maxTokens=24)
    for name in ("first", "second"):
        (hit, *_) = await hits_of(
            network, f"dogs bark {name} 3", mode="keyword", expand="section", limit=1
        )
        assert hit["breadcrumb"] == name.capitalize()
        content = hit["context"]["content"]
        assert content.startswith(f"# {name.capitalize()}")
        assert all(f"{paragraph} {name} {n}." in content for n, paragraph in enumerate(PARAGRAPHS))
        assert content == spanned(hit, SECTIONS)


async def test_hits_of_one_section_are_one(network: Network) -> None:
    await index(network, text("a", SECTIONS), chunkStrategy="markdown-headers", maxTokens=24)
    hits = await hits_of(network, "cats", expand="section", mode="keyword")
    assert [hit["breadcrumb"] for hit in hits] in (["First", "Second"], ["Second", "First"])
    assert all(len(hit["merged"]) == 2 for hit in hits)


async def test_sections_of_the_same_name_are_kept_apart(network: Network) -> None:
    twice = "# Top\n\n## Note\n\nCats here.\n\n## Other\n\nDogs.\n\n## Note\n\nCats there."
    await index(network, text("a", twice), chunkStrategy="markdown-headers", maxTokens=16)
    hits = await hits_of(network, "cats", expand="section", mode="keyword")
    assert len(hits) == 2
    for hit in hits:
        assert not ("here" in str(hit.get("context")) and "there" in str(hit.get("context")))


async def test_sliding_windows_overlap_only_once(network: Network) -> None:
    words = " ".join(f"word{n}" for n in range(200))
    await index(network, text("a", words), chunkStrategy="sliding-window", maxTokens=40, overlap=16)
    (hit, *_) = await hits_of(network, "word90", mode="keyword", limit=1, expand={"window": 2})
    content = hit["context"]["content"]
    assert content in words
    assert len(hit["context"]["chunks"]) == 5
    (whole, *_) = await hits_of(network, "word90", mode="keyword", limit=1, expand={"window": 10})
    assert len(whole["context"]["content"]) > len(content)


async def test_a_lone_chunk_has_no_context(network: Network) -> None:
    await index(network, text("a", "Cats."))
    (hit,) = await hits_of(network, expand="neighbors")
    assert "context" not in hit


async def test_duplicates_are_part_of_the_text_around(network: Network) -> None:
    await index(network, text("first", PARAGRAPHS[4]))
    await index(network, text("a"), dedupThreshold=0.999)
    (hit,) = await hits_of(network, "dogs bark moon", limit=1, expand="neighbors")
    assert hit["context"]["content"] == "\n\n".join(PARAGRAPHS[2:5])


async def test_excluded_sources_come_along_with_nothing(library: Network) -> None:
    await index(library, text("b", TEXT.replace("Cats", "Cats secretly")))
    for mode in MODES:
        hits = await hits_of(library, expand={"window": 3}, excludeSources=["b"], mode=mode)
        assert hits
        assert "secretly" not in str(hits)
        assert "docs:b" not in str(hits)


@pytest.mark.engine
async def test_it_is_one_read_beside_that_of_the_hits(library: Network) -> None:
    await hits_of(library)
    for expand, reads in ((None, 0), ("neighbors", 1), ("section", 1)):
        library.calls.clear()
        await hits_of(library, expand=expand)
        asked = [given.get("query", "") for _, given in library.calls]
        assert sum("chunkId IN :p" in query for query in asked) == reads


async def test_contexts_from_several_collections(library: Network) -> None:
    await index(library, text("a", TEXT.replace("Cats", "Cats elsewhere")), name="more")
    hits = await hits_of(library, collection="*", expand="neighbors", limit=4)
    assert {hit["collection"] for hit in hits} == {"docs", "more"}
    for hit in hits:
        assert all(chunk.startswith(f"{hit['collection']}:") for chunk in hit["context"]["chunks"])
        assert ("elsewhere" in hit["context"]["content"]) == (hit["collection"] == "more")


async def test_only_so_many_chunks_are_read(network: Network) -> None:
    for n in range(5):
        many = "\n\n".join(f"Cats {n} {m} sit on the long red wall again." for m in range(120))
        await index(network, text(f"d{n}", many))
    answer = await network.call(
        "search-query",
        collection="docs",
        query="cats",
        limit=600,
        expand={"window": 10},
        mode="keyword",
    )
    assert all("context" in hit for hit in answer["results"][:5])


async def test_it_explains_what_was_merged(library: Network) -> None:
    plain = {hit["chunkId"]: hit["score"] for hit in await hits_of(library, mode="keyword")}
    for hit in await hits_of(library, mode="keyword", expand="neighbors", explain=True):
        told = hit["explain"]["expand"]["merged"]
        assert list(told) == hit.get("merged", [])
        assert all(told[chunk_id] == plain[chunk_id] for chunk_id in told)


@pytest.mark.engine
async def test_if_it_cannot_be_read_the_hits_stay(library: Network) -> None:
    def fault(tool: str, given: Any) -> Any:
        if tool == "arcade-query" and "chunkId IN :p" in given["query"]:
            return {"success": False, "error": "no"}
        return None

    library.faults.append(fault)
    answer = await library.call(
        "search-query", collection="docs", query="cats", expand="neighbors", limit=2
    )
    assert answer["count"] == 2
    assert "expand" in answer["warnings"][0]
