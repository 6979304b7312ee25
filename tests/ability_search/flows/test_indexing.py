"""search-index over the wire: what is stored, what is embedded, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, document, down
from tests.ability_search.flows.stored import assert_consistent, chunks, logged, record, statistics

from kadi_client import RemoteError


def prose(topic: str, sentences: int) -> str:
    """A text of that many sentences, no two alike."""
    return " ".join(f"The {topic} number {n} lives in house {n * 7}." for n in range(sentences))


@pytest.mark.engine
async def test_unchanged_documents_are_not_embedded_again(network: Network) -> None:
    documents = [document(f"d{n}", prose(f"cat{n}", 3)) for n in range(5)]
    first = await network.call("search-index", collection="docs", documents=documents)
    requests, before = network.model.requests, await record(network, "docs")
    network.calls.clear()
    second = await network.call("search-index", collection="docs", documents=documents)
    assert (first["added"], first["unchanged"], first["failed"]) == (5, 0, [])
    assert (second["added"], second["updated"], second["unchanged"]) == (0, 0, 5)
    assert second["chunks"] == 0
    assert network.model.requests == requests
    assert (await record(network, "docs")).revision == before.revision
    assert network.calls[0][0] == "arcade-query"
    assert {name for name, _ in network.calls} <= {"arcade-query", "arcade-command"}
    await assert_consistent(network, "docs")


async def test_a_changed_document_re_embeds_only_its_own_text(network: Network) -> None:
    documents = [document(f"d{n}", f"words of document {n}") for n in range(20)]
    await network.call("search-index", collection="docs", documents=documents)
    network.model.texts.clear()
    documents[7]["content"] = "quite another text"
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert (answer["added"], answer["updated"], answer["unchanged"]) == (0, 1, 19)
    assert network.model.texts == ["d7\nquite another text"]
    (chunk,) = [row for row in await chunks(network, "docs") if row["source"] == "d7"]
    assert chunk["content"] == "quite another text"
    await assert_consistent(network, "docs")


@pytest.mark.parametrize(
    "change", [{"title": "T"}, {"metadata": {"a": 1}}, {"kind": "summary"}], ids=str
)
async def test_a_change_beside_the_text_is_a_change(
    network: Network, change: dict[str, Any]
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "some words")])
    changed = [document("a", "some words") | change]
    answer = await network.call("search-index", collection="docs", documents=changed)
    assert (answer["updated"], answer["unchanged"]) == (1, 0)
    (chunk,) = await chunks(network, "docs")
    assert {key: chunk[key] for key in change} == change


async def test_force_indexes_what_is_unchanged(network: Network) -> None:
    documents = [document("a", "alpha"), document("b", "beta")]
    await network.call("search-index", collection="docs", documents=documents)
    network.model.texts.clear()
    answer = await network.call("search-index", collection="docs", documents=documents, force=True)
    assert (answer["updated"], answer["unchanged"]) == (2, 0)
    assert sorted(network.model.texts) == ["alpha", "beta"]
    await assert_consistent(network, "docs")


async def test_of_two_documents_with_one_source_the_last_is_stored_and_the_other_named(
    network: Network,
) -> None:
    answer = await network.call(
        "search-index",
        collection="docs",
        documents=[document("a", "first"), document("b", "middle"), document("a", "second")],
    )
    assert answer["added"] == 2
    assert [(item["source"], item["code"]) for item in answer["failed"]] == [("a", "invalid_input")]
    stored = {row["source"]: row["content"] for row in await chunks(network, "docs")}
    assert stored == {"a": "second", "b": "middle"}


async def test_a_blank_document_fails_alone(network: Network) -> None:
    answer = await network.call(
        "search-index",
        collection="docs",
        documents=[document("a", " \n\t "), document("b", "words")],
    )
    assert answer["added"] == 1
    assert [item["source"] for item in answer["failed"]] == ["a"]
    assert "blank" in answer["failed"][0]["error"]
    await assert_consistent(network, "docs")


async def test_a_document_that_has_become_blank_is_deleted(network: Network) -> None:
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("a", "x"), document("b", "y"), document("marked", "z")],
    )
    answer = await network.call(
        "search-index",
        collection="docs",
        documents=[
            document("a", " \n"),
            document("b", " "),
            document("b", "z"),
            document("marked", "\ufeff \n"),
        ],
    )
    assert [(each["source"], each["code"]) for each in answer["failed"]] == [
        ("b", "invalid_input"),
        ("a", "invalid_input"),
        ("marked", "invalid_input"),
    ]
    assert "is blank; nothing is stored of it" in answer["failed"][1]["error"]
    assert {row["source"] for row in await chunks(network, "docs")} == {"b"}
    await assert_consistent(network, "docs")


async def test_only_blank_documents_create_no_collection(network: Network) -> None:
    answer = await network.call("search-index", collection="docs", documents=[document("a", " ")])
    assert (answer["added"], answer["chunks"], len(answer["failed"])) == (0, 0, 1)
    listed = await network.call("search-collections")
    assert listed["collections"] == []


async def test_documents_the_embedder_refuses_fail_alone(network: Network) -> None:
    def refuse(request: dict[str, Any]) -> None:
        if any("poison" in text for text in request["input"]):
            raise RemoteError("input contains a text that cannot be embedded: invalid input")

    network.model.failure = refuse
    documents = [document(f"d{n}", f"text {n} {'poison' * (n == 3)}") for n in range(8)]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert answer["added"] == 7
    assert [item["source"] for item in answer["failed"]] == ["d3"]
    assert answer["failed"][0]["error"]
    stored = await assert_consistent(network, "docs")
    assert stored.sources == 7


async def test_an_embedder_that_fails_for_a_while_is_waited_for(start: Start) -> None:
    async with start(
        SEARCH_EMBEDDING_BATCH_TEXTS="4",
        SEARCH_EMBEDDING_ATTEMPTS="20",
        SEARCH_EMBEDDING_BREAKER_RESET="0.05",
    ) as network:

        def fail_for_now(request: dict[str, Any]) -> None:
            if 2 < network.model.requests < 9:
                down(request)

        network.model.failure = fail_for_now
        documents = [document(f"d{n:02}", f"text number {n}") for n in range(40)]
        answer = await network.call("search-index", collection="docs", documents=documents)
        assert (answer["added"], answer["failed"]) == (40, [])
        assert network.model.requests >= 6 + 10


async def test_an_embedder_that_gives_out_half_way_loses_nothing_and_the_same_call_completes(
    start: Start,
) -> None:
    async with start(
        SEARCH_EMBEDDING_ATTEMPTS="1",
        SEARCH_EMBEDDING_BATCH_TEXTS="4",
        SEARCH_EMBEDDING_CONCURRENCY="1",
        SEARCH_EMBEDDING_BREAKER_FAILURES="1000",
    ) as network:
        documents = [document(f"d{n:02}", f"text number {n}") for n in range(40)]

        def give_out(_request: dict[str, Any]) -> None:
            if network.model.requests > 5:
                down(_request)

        network.model.failure = give_out
        refusal = await network.refused("search-index", collection="docs", documents=documents)
        assert refusal["code"] == "embedding_unavailable"
        assert refusal["retryable"] is True
        assert refusal["error"].endswith("; 20 of 40 documents are stored")
        assert refusal["hint"] == (
            "Check that the model manager or the API runs and serves this model. Then call again:"
            " what is stored is skipped."
        )
        stored = await assert_consistent(network, "docs")
        assert stored.sources == 20
        network.model.failure = None
        network.model.texts.clear()
        answer = await network.call("search-index", collection="docs", documents=documents)
        assert (answer["added"], answer["unchanged"]) == (20, 20)
        assert len(network.model.texts) == 20
        assert (await assert_consistent(network, "docs")).sources == 40


async def test_a_served_model_that_changed_under_its_name_is_a_dimension_mismatch(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "alpha")])
    before = await chunks(network, "docs")
    network.model.dimensions = 32
    refusal = await network.refused(
        "search-index", collection="docs", documents=[document("b", "beta")]
    )
    assert refusal["code"] == "dimension_mismatch"
    assert await chunks(network, "docs") == before


async def test_another_model_than_the_recorded_one_is_refused_before_anything_is_embedded(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "alpha")])
    requests = network.model.requests
    refusal = await network.refused(
        "search-index", collection="docs", documents=[document("b", "beta")], model="other"
    )
    assert refusal["code"] == "model_mismatch"
    assert MODEL in refusal["hint"]
    assert network.model.requests == requests
    own = await network.call(
        "search-index", collection="docs", documents=[document("b", "beta")], model=MODEL
    )
    assert own["added"] == 1


async def test_another_language_than_the_recorded_one_is_refused(network: Network) -> None:
    await network.call(
        "search-index", collection="docs", documents=[document("a", "Häuser")], language="german"
    )
    assert (await record(network, "docs")).language == "german"
    refusal = await network.refused(
        "search-index", collection="docs", documents=[document("b", "x")], language="english"
    )
    assert (refusal["code"], refusal["retryable"]) == ("invalid_input", False)
    assert "german" in refusal["error"]
    kept = await network.call("search-index", collection="docs", documents=[document("b", "x")])
    assert kept["added"] == 1


async def test_an_unknown_language_is_refused_by_name(network: Network) -> None:
    refusal = await network.refused(
        "search-index", collection="docs", documents=[document("a", "x")], language="klingon"
    )
    assert refusal["code"] == "invalid_input"
    assert "language" in refusal["error"]


async def test_an_overlap_as_long_as_a_chunk_is_refused_for_the_whole_call(
    network: Network,
) -> None:
    refusal = await network.refused(
        "search-index",
        collection="docs",
        documents=[document("a", "x")],
        maxTokens=32,
        overlap=32,
    )
    assert refusal["code"] == "invalid_input"
    assert refusal["error"].startswith("overlap")
    assert network.model.requests == 0


async def test_how_texts_are_cut_is_recorded_and_used_again(network: Network) -> None:
    text = prose("dog", 40)
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("a", text)],
        chunkStrategy="paragraph",
        maxTokens=40,
    )
    kept = await record(network, "docs")
    assert (kept.chunk_strategy, kept.chunk_size, kept.chunk_overlap) == ("paragraph", 40, 10)
    await network.call("search-index", collection="docs", documents=[document("b", text)])
    by_source: dict[str, list[str]] = {}
    for row in sorted(await chunks(network, "docs"), key=lambda row: row["chunkIndex"]):
        by_source.setdefault(row["source"], []).append(row["content"])
        assert row["tokens"] <= 40
    assert len(by_source["a"]) > 5
    assert by_source["a"] == by_source["b"]


async def test_the_context_of_chunks_is_that_of_the_collection_until_it_is_rebuilt(
    network: Network,
) -> None:
    text = "\n\n".join(f"Paragraph {n} has a few words of its own." for n in range(3))
    for source in ("a", "b"):
        await network.call(
            "search-index",
            collection="docs",
            documents=[document(source, text)],
            **({"maxTokens": 16, "context": 1} if source == "a" else {}),
        )
    assert (await record(network, "docs")).context == 1
    first, second, third = text.split("\n\n")
    assert f"b\n{first}\n{third}\n{second}" in network.model.texts
    unchanged = await network.call(
        "search-index", collection="docs", documents=[document("a", text)], context=1
    )
    assert unchanged["unchanged"] == 1
    await network.call("search-reindex", collection="docs", context="section")
    info = await network.call("search-collection-info", collection="docs")
    assert info["context"] == "section"
    wrong = await network.refused(
        "search-index", collection="docs", documents=[document("a", text)], context=9
    )
    assert wrong["error"].startswith("context: Input should be less than or equal to 8")


async def test_several_sources_are_deleted_in_one_call(network: Network) -> None:
    documents = [document(f"d{n}", f"text {n}") for n in range(4)]
    await network.call("search-index", collection="docs", documents=documents)
    deleted = await network.call("search-delete", collection="docs", sources=["d1", "d3", "none"])
    assert (deleted["deleted"], deleted["source"]) == (2, None)
    info = await network.call("search-collection-info", collection="docs")
    assert info["sources"] == ["d0", "d2"]
    refused = await network.refused("search-delete", collection="docs", source="d0", sources=["d2"])
    assert "mutually exclusive" in str(refused)


async def test_texts_that_occur_twice_are_embedded_once(network: Network) -> None:
    documents = [document(f"d{n}", "the very same text") | {"title": "T"} for n in range(10)]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert answer["chunks"] == 10
    assert network.model.texts == ["T\nthe very same text"]


async def test_what_was_indexed_is_found_at_once_by_its_words(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "zebra")])
    await network.call("search-index", collection="docs", documents=[document("b", "giraffe")])
    found = await network.call("search-query", collection="docs", query="giraffe", mode="keyword")
    assert [hit["source"] for hit in found["results"]] == ["b"]


async def test_a_text_of_nothing_but_punctuation_is_stored(network: Network) -> None:
    answer = await network.call(
        "search-index", collection="docs", documents=[document("!", "... !!! ???")]
    )
    assert answer["chunks"] == 1
    await assert_consistent(network, "docs")


@pytest.mark.slow
@pytest.mark.engine
async def test_a_thousand_tiny_documents_are_stored_in_few_transactions(network: Network) -> None:
    documents = [document(f"d{n}", f"tiny {n}") for n in range(1000)]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert answer["added"] == 1000
    writes = [given for name, given in network.calls if name == "arcade-command"]
    assert len(writes) < 30
    stored = await assert_consistent(network, "docs")
    assert stored.sources == 1000


async def test_more_documents_than_allowed_are_too_large(start: Start) -> None:
    async with start(SEARCH_MAX_BATCH_DOCUMENTS="3", SEARCH_MAX_DOCUMENT_BYTES="1024") as network:
        many = await network.refused(
            "search-index",
            collection="docs",
            documents=[document(f"d{n}", "x") for n in range(4)],
        )
        large = await network.refused(
            "search-index", collection="docs", documents=[document("d", "x" * 1025)]
        )
        assert (many["code"], large["code"]) == ("too_large", "too_large")
        assert "documents.0.content" in large["error"]
        assert network.model.requests == 0


async def test_no_documents_are_invalid(network: Network) -> None:
    refusal = await network.refused("search-index", collection="docs", documents=[])
    assert refusal["code"] == "invalid_input"
    assert "documents" in refusal["error"]


async def test_deleting_a_source_tells_how_many_chunks_went(network: Network) -> None:
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("a", prose("dog", 30)), document("b", "beta")],
        maxTokens=32,
    )
    of_a = [row for row in await chunks(network, "docs") if row["source"] == "a"]
    assert len(of_a) > 3
    deleted = await network.call("search-delete", collection="docs", source="a")
    again = await network.call("search-delete", collection="docs", source="a")
    assert (deleted["deleted"], again["deleted"]) == (len(of_a), 0)
    assert {row["source"] for row in await chunks(network, "docs")} == {"b"}
    await assert_consistent(network, "docs")


@pytest.mark.parametrize(
    "source",
    ["a' OR '1'='1", 'a" OR 1=1 --', "%", "*", "a\\", "x'; DELETE FROM Chunk; --", "${source}"],
)
async def test_a_source_that_looks_like_sql_deletes_nothing_else(
    network: Network, source: str
) -> None:
    documents = [document("a", "alpha"), document("b", "beta")]
    await network.call("search-index", collection="docs", documents=documents)
    deleted = await network.call("search-delete", collection="docs", source=source)
    assert deleted["deleted"] == 0
    assert (await assert_consistent(network, "docs")).sources == 2


async def test_a_collection_created_again_starts_clean(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "old words")])
    deleted = await network.call("search-delete", collection="docs")
    missing = await network.refused("search-query", collection="docs", query="old")
    assert (deleted["deleted"], missing["code"]) == (1, "not_found")
    assert deleted["source"] is None
    await network.call("search-index", collection="docs", documents=[document("b", "new text")])
    stored = await assert_consistent(network, "docs")
    assert (stored.sources, stored.chunks) == (1, 1)
    found = await network.call("search-query", collection="docs", query="old words text")
    assert [hit["source"] for hit in found["results"]] == ["b"]
    info = await network.call("search-collection-info", collection="docs")
    assert info["sources"] == ["b"]
    assert await logged(network) == {stored.type}
    assert [entry.revision for entry in await statistics(network, stored.type)] == [1]


async def test_averages_are_those_of_the_stored_chunks(network: Network) -> None:
    documents = [document(f"d{n}", prose("owl", n + 1)) for n in range(6)]
    await network.call("search-index", collection="docs", documents=documents, maxTokens=32)
    tokens = [row["tokens"] for row in await chunks(network, "docs")]
    info = await network.call("search-collection-info", collection="docs")
    assert (info["minTokens"], info["maxTokens"]) == (min(tokens), max(tokens))
    assert math.isclose(info["avgTokens"], sum(tokens) / len(tokens), abs_tol=0.006)


async def test_the_semantic_strategy_cuts_where_the_embedding_turns(network: Network) -> None:
    birds = "The heron waits beside the pond. A heron waits beside a pond. "
    ships = "Every ship has a heavy engine. A heavy engine has every ship. "
    options = {"collection": "docs", "chunkStrategy": "semantic"}
    long = document("a", birds * 40 + ships * 40)
    answer = await network.call("search-index", documents=[long], maxTokens=8192, **options)
    assert (answer["chunks"], answer["failed"]) == (2, [])
    again = await network.call("search-index", documents=[long], **options)
    assert again["unchanged"] == 1
    network.model.failure = down
    changed = document("a", ships * 40 + birds * 40)
    failed = await network.refused("search-index", documents=[changed], **options)
    assert failed["code"] == "embedding_unavailable"
