"""Consolidation of notes: the report, what is applied, and taking it back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document
from tests.ability_search.flows.playing import Talker, playing
from tests.ability_search.flows.stored import record
from tests.ability_search.flows.test_artifacts import export, import_

from ability_search.extensions.notes.note_links import read_sources
from ability_search.store.pages import source_texts
from kadi_client import ToolError
from kadi_localnet.models import minilm
from kadi_localnet.models.encoder import Encoder


def note(source: str, content: str, **fields: Any) -> dict[str, Any]:
    return document(source, content, title="", **fields)


RATE = "The rate limit of the gateway is 100 requests per minute"
NOTES = [
    note("old", f"{RATE}.", metadata={"date": "2026-01-10"}),
    note("new", f"{RATE.replace('100', '200')}.", metadata={"date": "2026-03-10"}),
    note("cat", "The cat of the office sleeps on the printer."),
    note("copy", "The cat of the office sleeps on the printer"),
    note("copy 2", "the cat of the office sleeps on the printer"),
    note("summary", "Printer paper is ordered in May.", metadata={"source_id": "cat"}),
    note("offer", "Zebra licences cost less; the offer ends on 2020-03-31."),
]


async def consolidated(network: Network, **options: Any) -> dict[str, Any]:
    answer = await network.call("notes-consolidate", collection="docs", **options)
    info = await network.call("search-collection-info", collection="docs")
    (job,) = [each for each in info["jobs"] if each["kind"] == "consolidation"]
    assert (job["state"], job.get("result")) == ("done", None)
    overview = await network.call("notes-overview", collection="docs", include=["consolidation"])
    found: dict[str, Any] = overview["consolidation"]
    assert {field: answer[field] for field in found} == found
    return found


async def indexed(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=NOTES)


async def found_by(network: Network, query: str) -> list[str]:
    answer = await network.call("search-query", collection="docs", query=query, limit=20)
    return [hit["source"] for hit in answer["results"]]


async def links_of(network: Network) -> set[tuple[str, str, str]]:
    stored = await record(network, "docs")
    records = await read_sources(network.store, stored)
    return {(each.source, link["target"], link["kind"]) for each in records for link in each.links}


async def test_the_report_names_findings_with_evidence_and_changes_nothing(
    network: Network,
) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    found = await consolidated(network)
    assert (found["notes"], found["chunks"], found["applied"]) == (7, 7, 0)
    assert {(each["source"], each["kept"]) for each in found["duplicates"]} == {
        ("copy", "cat"),
        ("copy 2", "cat"),
    }
    (contradiction,) = found["contradictions"]
    assert (contradiction["source"], contradiction["other"]) == ("new", "old")
    assert (contradiction["rule"], contradiction["differing"]) == (
        "numbers",
        ["200 requests", "100 requests"],
    )
    assert {(each["source"], each["reason"], each.get("by")) for each in found["stale"]} == {
        ("old", "superseded", "new"),
        ("offer", "expired", None),
    }
    named = {(each["source"], each["target"], each["kind"]) for each in found["links"]}
    assert {("summary", "cat", "derives_from"), ("new", "old", "contradicts")} <= named
    assert await found_by(network, "cat printer") == before
    assert await links_of(network) == set()


@pytest.mark.slow
@pytest.mark.engine
async def test_apply_sets_duplicates_aside_and_undo_returns_them(network: Network) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    assert (await consolidated(network, apply=True))["applied"] >= 4
    after = await found_by(network, "cat printer")
    assert {*before} - {*after} == {"copy", "copy 2"}
    assert {
        ("copy", "cat", "duplicate_of"),
        ("copy 2", "cat", "duplicate_of"),
        ("summary", "cat", "derives_from"),
        ("new", "old", "contradicts"),
    } <= await links_of(network)
    again = await consolidated(network, apply=True)
    assert (again["notes"], again["applied"], again["counts"]["duplicates"]) == (5, 0, 0)
    same = await network.call("search-index", collection="docs", documents=NOTES)
    assert (same["unchanged"], same["updated"]) == (7, 0)
    undone = await consolidated(network, undo=True)
    assert (undone["undone"] >= 4, undone["applied"], undone["counts"]["duplicates"]) == (
        True,
        0,
        2,
    )
    assert await links_of(network) == set()
    assert await found_by(network, "cat printer") == before
    assert (await consolidated(network, undo=True))["undone"] == 0


async def test_undo_takes_back_one_apply_at_a_time(network: Network) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    first = await links_of(network)
    late = note("copy 3", "The cat of the office sleeps on the printer!")
    about = note("about", "Printers are noisy.", metadata={"derives_from": ["summary", "cat"]})
    await network.call("search-index", collection="docs", documents=[late, about])
    await consolidated(network, apply=True)
    assert {("about", "cat", "derives_from")} <= await links_of(network) - first
    assert {"copy", "copy 2"}.isdisjoint(await found_by(network, "cat printer"))
    await consolidated(network, undo=True)
    assert await links_of(network) == first
    assert {"copy", "copy 2"}.isdisjoint(await found_by(network, "cat printer"))
    await consolidated(network, undo=True)
    assert await links_of(network) == set()
    assert {"copy", "copy 2", "copy 3"} <= {*await found_by(network, "cat printer")}


async def test_a_note_that_its_author_changed_is_not_restored(network: Network) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    changed = note("copy", "The dog of the office sleeps under the desk.")
    await network.call("search-index", collection="docs", documents=[changed])
    await consolidated(network, undo=True)
    info = await network.call(
        "search-query", collection="docs", query="dog desk", limit=1, mode="keyword"
    )
    assert info["results"][0]["content"] == changed["content"]


async def test_one_duplicate_returns_when_the_note_that_represents_it_is_deleted(
    network: Network,
) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    await network.call("search-delete", collection="docs", source="cat")
    assert {"copy", "copy 2"} & {*await found_by(network, "cat printer")} == {"copy 2"}
    await consolidated(network, undo=True)
    assert {"copy", "copy 2"} <= {*await found_by(network, "cat printer")}


async def test_a_duplicate_that_has_returned_is_not_set_aside_with_the_note_that_replaced_it(
    network: Network,
) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    changed = note("cat", "The dog sleeps under the desk.", metadata={"source_id": "offer"})
    await network.call("search-index", collection="docs", documents=[changed])
    await consolidated(network, apply=True)
    found = await found_by(network, "cat printer")
    assert {"copy", "copy 2"} & {*found} == {"copy 2"}


@pytest.mark.slow
@pytest.mark.engine
async def test_a_rebuild_keeps_what_was_applied_and_it_can_be_undone(network: Network) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    await consolidated(network, apply=True)
    applied = await links_of(network)
    await network.call("search-reindex", collection="docs", maxTokens=96)
    assert {*before} - {*await found_by(network, "cat printer")} == {"copy", "copy 2"}
    assert await links_of(network) == applied
    assert (await consolidated(network, undo=True))["undone"] >= 4
    assert await links_of(network) == set()
    assert await found_by(network, "cat printer") == before


async def test_a_rebuild_does_not_set_aside_what_has_returned(network: Network) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    changed = note("cat", "The dog of the office sleeps under the desk.")
    await network.call("search-index", collection="docs", documents=[changed])
    await network.call("search-reindex", collection="docs")
    assert {"copy", "copy 2"} & {*await found_by(network, "cat printer")} == {"copy 2"}


async def test_what_is_undone_during_a_rebuild_stays_undone(network: Network) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    rebuilding = asyncio.create_task(network.call("search-reindex", collection="docs"))
    undone = asyncio.create_task(consolidated(network, undo=True))
    await asyncio.wait([rebuilding, undone])
    await rebuilding
    if undone.exception() is not None:  # the rebuild was faster
        await consolidated(network, undo=True)
    assert await links_of(network) == set()
    assert {"copy", "copy 2"} <= {*await found_by(network, "cat printer")}


async def test_an_artifact_has_what_was_applied_and_it_can_be_undone(
    network: Network, tmp_path: Path
) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    await consolidated(network, apply=True)
    await export(network, tmp_path / "artifact")
    await network.call("search-delete", collection="docs")
    await import_(network, tmp_path / "artifact", "docs")
    assert {*before} - {*await found_by(network, "cat printer")} == {"copy", "copy 2"}
    assert (await consolidated(network, undo=True))["undone"] >= 4
    assert await links_of(network) == set()
    assert await found_by(network, "cat printer") == before


TOPICS = [
    note("rate old", f"{RATE}.", metadata={"date": "2026-01-10"}),
    note("rate new", f"{RATE.replace('100', '200')}.", metadata={"date": "2026-03-10"}),
    note("office", "The team of the gateway meets in the office of Graz."),
    note("remote", "The team of the gateway has no office, it works from home."),
    note("lunch", "The team of the gateway eats lunch at noon."),
]


async def test_a_language_model_judges_what_the_rules_propose_and_further_pairs(
    network: Network,
) -> None:
    await network.call("search-index", collection="docs", documents=TOPICS)

    def says(request: dict[str, Any]) -> str:
        asked = request["messages"][1]["content"]
        if "100 requests" in asked and "200 requests" in asked:
            return "Yes, both."
        if "office of Graz" in asked and "no office" in asked:
            return " **NO**"
        return "I think it depends."

    by_rules = (await consolidated(network))["contradictions"]
    assert [(each["source"], each["judge"]) for each in by_rules] == [("rate new", "rules")]
    async with playing(network.url, Talker(say=says)) as talker:
        found = await consolidated(network, judge="chat")
        (only,) = found["contradictions"]
        assert {only["source"], only["other"]} == {"office", "remote"}
        assert (only["judge"], only.get("rule"), only.get("differing")) == ("chat", None, None)
        assert only["statement"].startswith("The team of the gateway")
        assert found["judged"] == 2
        assert (
            f"of {len(talker.requests)} pairs of notes: the language model answered neither"
            in (found["warnings"][0])
        )
        assert ("contradicts", "chat") in {(e["kind"], e["reason"]) for e in found["links"]}
        assert {request["max_tokens"] for request in talker.requests} == {256}
    without = await consolidated(network, judge="chat")
    assert without["contradictions"] == by_rules
    assert without["judged"] == 0
    assert "chat-completion" in without["warnings"][0]


async def test_apply_excludes_undo_and_there_are_no_settings(network: Network) -> None:
    for wrong in ({"apply": True, "undo": True}, {"model": "m"}):
        with pytest.raises(ToolError) as failure:
            await network.call("notes-consolidate", collection="docs", **wrong)
        assert failure.value.code == "invalid_input"


TOPS = (
    "The backup of the mail server begins at two in the morning and is written to a tape.",
    "The keys of the archive are kept in the safe of the accounting department.",
    "Printers on the third floor take paper of the size A3 and are cleaned in spring.",
    "A visitor signs the book at the entrance and is fetched by the person to be visited.",
    "Bicycles stand in the yard behind the kitchen, and never in front of the gate.",
    "The heating of the laboratory is switched off in June by the caretaker.",
)
SMALL = {"chunkStrategy": "paragraph", "maxTokens": 24}


def handbook(source: str, paragraphs: Sequence[str], **fields: Any) -> dict[str, Any]:
    return note(source, "\n\n".join(paragraphs), **fields)


async def index(network: Network, *documents: dict[str, Any], **options: Any) -> dict[str, Any]:
    wanted = {"collection": "docs", "documents": documents, **SMALL, **options}
    report: dict[str, Any] = await network.call("search-index", **wanted)
    return report


async def duplicates_of(network: Network) -> set[tuple[str, str]]:
    found = await consolidated(network)
    return {(each["source"], each["kept"]) for each in found["duplicates"]}


async def test_a_document_duplicates_one_that_has_all_of_its_chunks_and_little_else(
    network: Network,
) -> None:
    more = ("The lift is checked each year by an inspector from the city.",)
    await index(network, handbook("book", (*TOPS, *more)), handbook("copy", TOPS))
    found = await consolidated(network)
    assert (found["notes"], found["chunks"]) == (2, 13)
    (duplicate,) = found["duplicates"]
    assert (duplicate["source"], duplicate["kept"]) == ("copy", "book")
    assert (duplicate["cosine"], duplicate["share"]) == (1.0, pytest.approx(6 / 7, abs=1e-4))


@pytest.mark.parametrize(
    "other",
    [TOPS[:3], TOPS[:1], (*TOPS[:5], "Dogs may come along on Fridays, cats never.")],
    ids=["a half", "a chunk", "a copy with another chunk"],
)
async def test_a_part_of_a_document_or_one_with_a_chunk_of_its_own_is_no_duplicate(
    network: Network, other: Sequence[str]
) -> None:
    await index(network, handbook("book", TOPS), handbook("other", other))
    assert await duplicates_of(network) == set()


async def test_equal_chunks_of_one_document_are_not_compared(network: Network) -> None:
    rates = [f"{RATE.replace('100', each)} and user of the test stage." for each in ("7", "9")]
    await index(network, handbook("book", (*TOPS[:2], TOPS[0], *rates)))
    found = await consolidated(network)
    assert found["chunks"] == 5
    assert set(found["counts"].values()) == {0}


async def test_neighbours_in_its_own_document_hide_no_other_document(network: Network) -> None:
    same = [f"{TOPS[0]} It is repeated {word}." for word in "abcdefghijklm"]
    await index(network, handbook("book", same), handbook("copy", same[:1]))
    linked = {(e["source"], e["target"]) for e in (await consolidated(network))["links"]}
    assert linked == {("book", "copy")}


async def test_a_contradiction_names_the_chunks_of_both_documents(network: Network) -> None:
    old = (*TOPS[:2], f"{RATE}.", TOPS[3])
    new = (TOPS[4], f"{RATE.replace('100', '200')}.", TOPS[5])
    await index(
        network,
        handbook("old", old, metadata={"date": "2026-01-10"}),
        handbook("new", new, metadata={"date": "2026-03-10"}),
    )
    found = await consolidated(network)
    (contradiction,) = found["contradictions"]
    assert (contradiction["source"], contradiction["chunkId"]) == ("new", "docs:new:1")
    assert (contradiction["other"], contradiction["otherChunkId"]) == ("old", "docs:old:2")
    (stale,) = found["stale"]
    assert (stale["source"], stale["chunkId"], stale["by"]) == ("old", "docs:old:2", "new")


async def test_a_document_that_ends_is_stale_once_and_else_the_chunk_that_ends(
    network: Network,
) -> None:
    offer = "The offer of zebra licences ends on 2020-03-31."
    await index(
        network,
        handbook("book", (*TOPS[:2], offer)),
        handbook("old", TOPS[3:], metadata={"expires": "2021-01-01"}),
    )
    stale = (await consolidated(network))["stale"]
    assert {(each["source"], each.get("chunkId"), each["date"]) for each in stale} == {
        ("book", "docs:book:2", "2020-03-31"),
        ("old", None, "2021-01-01"),
    }


@pytest.mark.slow
@pytest.mark.engine
async def test_a_document_of_several_chunks_is_set_aside_and_returned_as_a_whole(
    network: Network,
) -> None:
    tagged = handbook("copy", TOPS, metadata={"source_id": "other"})
    await index(network, handbook("book", TOPS), tagged, handbook("other", TOPS[:3]))
    before = {query: await found_by(network, query) for query in TOPS}
    assert all("copy" in found or "book" in found for found in before.values())
    stored = await contents(network)
    assert (await consolidated(network, apply=True))["applied"] >= 1
    after = {query: await found_by(network, query) for query in TOPS}
    assert {source for found in after.values() for source in found} == {"book", "other"}
    assert await contents(network) == stored
    assert (await consolidated(network, apply=True))["applied"] == 0
    await consolidated(network, undo=True)
    assert {query: await found_by(network, query) for query in TOPS} == before
    assert await contents(network) == stored
    assert await links_of(network) == set()


async def test_all_chunks_return_when_the_document_that_represents_them_changes(
    network: Network,
) -> None:
    await index(network, handbook("book", TOPS), handbook("copy", TOPS))
    await consolidated(network, apply=True)
    assert "copy" not in await found_by(network, TOPS[4])
    await index(network, handbook("book", TOPS[:2]))
    for query in TOPS:
        assert "copy" in await found_by(network, query)
    assert await duplicates_of(network) == set()


async def test_a_rebuild_with_other_chunks_keeps_a_document_aside(network: Network) -> None:
    await index(network, handbook("book", TOPS), handbook("copy", TOPS))
    await consolidated(network, apply=True)
    applied = await links_of(network)
    await network.call("search-reindex", collection="docs", maxTokens=60)
    assert await links_of(network) == applied
    for query in TOPS:
        assert "copy" not in await found_by(network, query)
    await consolidated(network, undo=True)
    assert "copy" in await found_by(network, TOPS[4])


async def test_chunks_that_deduplication_left_out_stay_out_when_links_are_added(
    network: Network,
) -> None:
    await index(network, handbook("first", TOPS[:1]))
    linked = handbook("second", TOPS[:2], metadata={"source_id": "first"})
    assert (await index(network, linked, dedupThreshold=0.99))["deduplicated"] == 1
    before = await found_by(network, TOPS[0])
    assert (await consolidated(network, apply=True))["applied"] == 1
    assert await found_by(network, TOPS[0]) == before
    await consolidated(network, undo=True)
    assert await found_by(network, TOPS[0]) == before
    await network.call("search-delete", collection="docs", source="first")
    answer = await network.call("search-query", collection="docs", query=TOPS[0], limit=1)
    assert (answer["results"][0]["content"], answer["results"][0]["source"]) == (TOPS[0], "second")


@pytest.mark.slow
@pytest.mark.model
async def test_copies_are_found_by_a_real_model(network: Network, tmp_path: Path) -> None:
    encoder = Encoder.load(minilm.ensure_files(minilm.weights_directory(), tmp_path))
    network.model.dimensions = 384
    network.model.vector = lambda text: encoder.infer(encoder.tokenize([text]))[0]  # type: ignore[method-assign]
    edited = [each.replace(" is ", " is also ", 1) for each in TOPS]
    changed = [each.replace("size A3", "size A4") for each in TOPS]
    dated = {"metadata": {"date": "2026-03-10"}}
    await index(
        network,
        handbook("book", TOPS, metadata={"date": "2026-01-10"}),
        handbook("edited", edited, **dated),
        handbook("changed", changed, **dated),
        handbook("half", TOPS[3:], **dated),
        note("lunch", "Lunch is served at noon in the canteen.", **dated),
        maxTokens=32,
    )
    found = await consolidated(network, apply=True)
    assert [(e["source"], e["kept"]) for e in found["duplicates"]] == [("book", "edited")]
    assert found["duplicates"][0]["cosine"] > 0.95
    answer = await network.call("search-query", collection="docs", query="mail backup tape")
    assert {"edited", "changed"} <= {each["source"] for each in answer["results"]}
    assert "book" not in {each["source"] for each in answer["results"]}


async def contents(network: Network) -> dict[str, list[str]]:
    """Return the chunks of each document that are stored, indexed or not."""
    stored = await record(network, "docs")
    texts = await source_texts(network.store, stored, await read_sources(network.store, stored))
    return {source: [each.content for each in parts] for source, parts in texts.items()}
