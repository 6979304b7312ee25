"""Consolidation of notes: the report, what is applied, and taking it back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document
from tests.ability_search.flows.playing import Talker, playing
from tests.ability_search.flows.test_artifacts import export, import_

from kadi_client import ToolError


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
    answer = await network.call("search-reindex", collection="docs", consolidate=options)
    assert answer["state"] == "done"
    info = await network.call(
        "search-collection-info", collection="docs", include=["consolidation"]
    )
    (job,) = [each for each in info["jobs"] if each["kind"] == "consolidation"]
    assert (job["state"], job.get("result")) == ("done", None)
    found: dict[str, Any] = info["consolidation"]
    return found


async def indexed(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=NOTES)


async def found_by(network: Network, query: str) -> dict[str, float]:
    answer = await network.call("search-query", collection="docs", query=query, limit=20)
    return {hit["source"]: round(hit["score"], 6) for hit in answer["results"]}


async def links_of(network: Network) -> set[tuple[str, str, str]]:
    (record,) = [each for each in await network.store.collections() if each.name == "docs"]
    records = await network.store.source_records(record.type, after="", limit=100)
    return {(each.source, link["target"], link["kind"]) for each in records for link in each.links}


async def test_the_report_names_findings_with_evidence_and_changes_nothing(
    network: Network,
) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    found = await consolidated(network)
    assert (found["notes"], found["longer"], found["applied"]) == (7, 0, 0)
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


@pytest.mark.engine
async def test_apply_sets_duplicates_aside_and_undo_returns_them(network: Network) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    assert (await consolidated(network, apply=True))["applied"] >= 4
    after = await found_by(network, "cat printer")
    assert before.keys() - after.keys() == {"copy", "copy 2"}
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
    assert {"copy", "copy 2", "copy 3"} <= (await found_by(network, "cat printer")).keys()


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


async def test_a_duplicate_returns_when_the_note_that_represents_it_is_deleted(
    network: Network,
) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    await network.call("search-delete", collection="docs", source="cat")
    assert {"copy", "copy 2"} <= (await found_by(network, "cat printer")).keys()


async def test_a_duplicate_that_has_returned_is_not_set_aside_with_the_note_that_replaced_it(
    network: Network,
) -> None:
    await indexed(network)
    await consolidated(network, apply=True)
    changed = note("cat", "The dog sleeps under the desk.", metadata={"source_id": "offer"})
    await network.call("search-index", collection="docs", documents=[changed])
    await consolidated(network, apply=True)
    found = await found_by(network, "cat printer")
    assert {"copy", "copy 2"} & found.keys() == {"copy"}


@pytest.mark.engine
async def test_a_rebuild_keeps_what_was_applied_and_it_can_be_undone(network: Network) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    await consolidated(network, apply=True)
    applied = await links_of(network)
    await network.call("search-reindex", collection="docs", maxTokens=96)
    assert before.keys() - (await found_by(network, "cat printer")).keys() == {"copy", "copy 2"}
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
    assert {"copy", "copy 2"} <= (await found_by(network, "cat printer")).keys()


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
    assert {"copy", "copy 2"} <= (await found_by(network, "cat printer")).keys()


async def test_an_artifact_has_what_was_applied_and_it_can_be_undone(
    network: Network, tmp_path: Path
) -> None:
    await indexed(network)
    before = await found_by(network, "cat printer")
    await consolidated(network, apply=True)
    await export(network, tmp_path / "artifact")
    await network.call("search-reindex", collection="docs", clear=True)
    await import_(network, tmp_path / "artifact", "docs")
    assert before.keys() - (await found_by(network, "cat printer")).keys() == {"copy", "copy 2"}
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


async def test_apply_excludes_undo_and_consolidate_excludes_settings(network: Network) -> None:
    for wrong in (
        {"consolidate": {"apply": True, "undo": True}},
        {"consolidate": {}, "model": "m"},
        {"consolidate": {}, "analyze": True},
    ):
        with pytest.raises(ToolError) as failure:
            await network.call("search-reindex", collection="docs", **wrong)
        assert failure.value.code == "invalid_input"
