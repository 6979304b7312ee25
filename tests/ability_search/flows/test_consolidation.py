"""Consolidation of notes: the report, what is applied, and taking it back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document

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


async def consolidated(network: Network, **options: bool) -> dict[str, Any]:
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


async def test_apply_excludes_undo_and_consolidate_excludes_settings(network: Network) -> None:
    for wrong in (
        {"consolidate": {"apply": True, "undo": True}},
        {"consolidate": {}, "model": "m"},
        {"consolidate": {}, "analyze": True},
    ):
        with pytest.raises(ToolError) as failure:
            await network.call("search-reindex", collection="docs", **wrong)
        assert failure.value.code == "invalid_input"
