"""``decay``: age lowers scores, use by the same agent raises them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES, hits_of, scores_of
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import backdate, chunks, uses

from ability_search.extensions.sessions.uses import put_use

DAY = 86_400_000
AGES = [800, 90, 0, 180, 10]
"""Days, of each chunk."""


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Five chunks about cats, the more often the lower their number, of different ages."""
    async with start() as network:
        documents = [document(f"d{n}", f"{'cats ' * (9 - n)}and number {n}") for n in range(5)]
        await network.call("search-index", collection="docs", documents=documents)
        for n, age in enumerate(AGES):
            await backdate(network, "docs", f"d{n}", age * DAY)
        yield network


async def used(network: Network, agent: str, total: int) -> dict[str, int]:
    """What was shown to an agent how often, once it is ``total`` times in all."""
    found: dict[str, int] = {}
    async with asyncio.timeout(20):
        while sum(found.values()) < total:
            counted = [use for use in await uses(network, "docs", "other") if use.agent == agent]
            found = {use.chunk_id: use.uses for use in counted}
    return found


async def used_once(network: Network, agent: str) -> None:
    shown = await hits_of(network, decay={"agentId": agent})
    await used(network, agent, len(shown))


async def test_a_score_falls_with_age_down_to_the_floor(library: Network) -> None:
    for mode in MODES:
        plain = scores_of(await hits_of(library, mode=mode))
        option = {"halfLifeDays": 90, "floor": 0.2}
        factors = [max(0.2, 2 ** (-age / 90)) for age in AGES]
        hits = await hits_of(library, mode=mode, decay=option, explain=True)
        assert scores_of(hits) == pytest.approx(
            {f"d{n}": plain[f"d{n}"] * factor for n, factor in enumerate(factors)}, rel=1e-4
        )
        for hit in hits:
            told = hit["explain"]["decay"]
            assert told["after"] == hit["score"]
            assert told["ageDays"] == pytest.approx(AGES[int(hit["source"][1:])], abs=0.01)
            assert "uses" not in told
        half = scores_of(await hits_of(library, mode=mode, decay={**option, "weight": 0.5}))
        assert half == pytest.approx(
            {f"d{n}": plain[f"d{n}"] * (1 + factor) / 2 for n, factor in enumerate(factors)},
            rel=1e-4,
        )


async def test_ages_are_those_when_the_question_is_asked(library: Network) -> None:
    (stored,) = [row for row in await chunks(library, "docs") if row["source"] == "d2"]
    option = {"halfLifeDays": 90, "floor": 0.2}
    plain = scores_of(await hits_of(library))
    asked = datetime.fromtimestamp(stored["createdAt"] / 1000 - 100 * 86_400, UTC)
    hits = await hits_of(library, decay=option, asOf=asked.isoformat(), explain=True)
    ages = [max(0, age - 100) for age in AGES]
    told = {hit["source"]: hit["explain"]["decay"]["ageDays"] for hit in hits}
    assert told == pytest.approx({f"d{n}": age for n, age in enumerate(ages)}, abs=0.01)
    assert scores_of(hits) == pytest.approx(
        {f"d{n}": plain[f"d{n}"] * max(0.2, 2 ** (-age / 90)) for n, age in enumerate(ages)},
        rel=1e-4,
    )
    await hits_of(library, limit=1, decay={"agentId": "reader"}, asOf="2001-02-03")
    await used(library, "reader", 1)
    (use,) = await uses(library, "docs")
    assert use.last_at >= stored["createdAt"], "use is counted when it happens"


async def test_age_may_count_from_a_date_in_the_metadata(network: Network) -> None:
    dates = {"old": "2020-01-01", "new": "2026-03-01T10:00:00Z", "odd": "long ago", "none": None}
    documents = [
        document(source, "cats", title="", metadata={"about": {"on": date}})
        for source, date in dates.items()
    ]
    await network.call("search-index", collection="docs", documents=documents)
    option = {"field": "metadata.about.on", "halfLifeDays": 100, "floor": 0.1}
    hits = await hits_of(network, decay=option, asOf="2026-03-02", explain=True)
    ages = {hit["source"]: hit["explain"]["decay"]["ageDays"] for hit in hits}
    assert ages == pytest.approx({"old": 2253, "new": 1 + 14 / 24, "odd": 0, "none": 0}, abs=0.01)
    assert hits[-1]["source"] == "old"
    assert hits[-1]["score"] == pytest.approx(0.1 * hits[0]["score"])
    answer = await network.refused(
        "search-query", collection="docs", query="cats", decay={"field": "title"}
    )
    assert "decay.field" in answer["error"]


async def test_marks_count_for_the_agent_that_set_them(library: Network) -> None:
    asked = {"floor": 1, "agentId": "reader"}
    plain = scores_of(await hits_of(library))
    marks = {"useful": ["docs:d4:0"], "notUseful": ["docs:d0:0", "gone:x:0"]}
    await hits_of(library, limit=1, decay={**asked, **marks})
    await used(library, "reader", 1)
    hits = await hits_of(library, decay=asked, explain=True)
    factors = {"d0": 0.7 / 1.3, "d4": 1.0}
    assert scores_of(hits) == pytest.approx(
        {source: score * factors.get(source, 1 / 1.3) for source, score in plain.items()}
    )
    told = {hit["source"]: hit["explain"]["decay"].get("useful") for hit in hits}
    assert told == {"d0": False, "d1": None, "d2": None, "d3": None, "d4": True}
    assert len(hits) == 5, "nothing is left out"
    other = await hits_of(library, decay={**asked, "agentId": "other"})
    assert scores_of(other) == pytest.approx({key: each / 1.3 for key, each in plain.items()})
    answer = await library.refused(
        "search-query", collection="docs", query="cats", decay={"useful": ["docs:d4:0"]}
    )
    assert "decay.agentId" in answer["error"]


async def test_without_weight_nothing_changes(library: Network) -> None:
    for mode in MODES:
        plain = await hits_of(library, mode=mode, explain=True)
        for agent in ({}, {"agentId": "a"}):
            option = {"weight": 0, "halfLifeDays": 1, **agent}
            assert await hits_of(library, mode=mode, decay=option, explain=True) == plain


async def test_what_an_agent_was_shown_counts_for_this_agent_alone(library: Network) -> None:
    ageless = {"floor": 1}
    plain = scores_of(await hits_of(library))
    asked = {"limit": 1, "excludeSources": ["d0"]}
    for round_ in range(1, 4):
        (hit,) = await hits_of(library, **asked, decay={**ageless, "agentId": "reader"})
        assert hit["source"] == "d1"
        assert await used(library, "reader", round_) == {"docs:d1:0": round_}
    hits = await hits_of(library, decay={**ageless, "agentId": "reader"}, explain=True)
    boosted = {source: score / 1.3 for source, score in plain.items()}
    assert scores_of(hits) == pytest.approx(boosted | {"d1": plain["d1"] * 1.06 / 1.3})
    told = {hit["source"]: hit["explain"]["decay"] for hit in hits}
    assert (told["d1"]["uses"], told["d2"]["uses"]) == (3, 0)
    other = await hits_of(library, decay={**ageless, "agentId": "O'Other\\"}, explain=True)
    assert scores_of(other) == pytest.approx(boosted)
    assert {hit["explain"]["decay"]["uses"] for hit in other} == {0}
    assert scores_of(await hits_of(library, decay=ageless)) == plain
    assert scores_of(await hits_of(library)) == plain


async def test_use_has_a_limit(library: Network) -> None:
    plain = scores_of(await hits_of(library))
    await used_once(library, "reader")
    (use,) = [use for use in await uses(library, "docs") if use.chunk_id == "docs:d4:0"]
    await library.store.commit([put_use(replace(use, uses=1_000_000))])
    hits = await hits_of(library, decay={"floor": 1, "agentId": "reader"})
    assert scores_of(hits)["d4"] == pytest.approx(plain["d4"])
    assert all(hit["score"] <= plain[hit["source"]] for hit in hits)


async def test_only_what_is_shown_is_counted(library: Network) -> None:
    await hits_of(library, limit=2, offset=1, decay={"agentId": "reader", "floor": 1})
    assert await used(library, "reader", 2) == {"docs:d1:0": 1, "docs:d2:0": 1}
    await hits_of(library)
    assert len(await uses(library, "docs")) == 2


async def test_a_deleted_collection_takes_its_use_along(library: Network) -> None:
    await library.call("search-index", collection="other", documents=[document("o", "cats")])
    await hits_of(library, collection="*", decay={"agentId": "reader"})
    await used(library, "reader", 6)
    await library.call("search-reindex", collection="docs")
    assert len(await uses(library, "docs", "other")) == 6
    await library.call("search-delete", collection="docs")
    (left,) = await uses(library, "docs", "other")
    assert (left.collection, left.chunk_id) == ("other", "other:o:0")


@pytest.mark.slow
@pytest.mark.engine
async def test_nobody_waits_for_the_counting_and_nothing_fails_with_it(library: Network) -> None:
    gate = asyncio.Event()

    async def wait(tool_input: dict[str, Any], call: Any) -> Any:
        await gate.wait()
        return {"success": False, "error": "no"}

    library.instead["arcade-command"] = wait
    hits = await hits_of(library, decay={"agentId": "reader"})
    assert len(hits) == 5
    gate.set()
    del library.instead["arcade-command"]
    assert len(await hits_of(library, decay={"agentId": "reader"})) == 5
    await used(library, "reader", 5)


@pytest.mark.engine
async def test_without_the_counts_the_query_goes_on_and_says_so(library: Network) -> None:
    await used_once(library, "reader")

    def fail(tool: str, tool_input: Any) -> Any:
        if tool == "arcade-query" and "FROM Record" in tool_input["query"]:
            return {"success": False, "error": "no"}
        return None

    library.faults.append(fail)
    answer = await library.call(
        "search-query", collection="docs", query="cats", decay={"agentId": "reader"}
    )
    assert answer["count"] == 5
    (warning,) = answer["warnings"]
    assert "previous use is ignored" in warning


@pytest.mark.engine
async def test_use_is_counted_before_the_worker_ends(start: Start) -> None:
    async with start(database="drained") as network:
        await network.call("search-index", collection="docs", documents=[document("a", "cats")])
        for _ in range(3):
            await hits_of(network, decay={"agentId": "reader"})
    async with start(database="drained") as network:
        assert [use.uses for use in await uses(network, "docs")] == [3]


@pytest.mark.engine
async def test_counting_costs_one_look_and_one_write(library: Network) -> None:
    await used_once(library, "reader")
    library.hops()
    await hits_of(library, decay={"agentId": "reader"})
    asked = [given.get("query", "") for _, given in library.calls]
    assert len(asked) <= 5
    assert sum("FROM Record" in query for query in asked) == 1
    await used(library, "reader", 10)
    assert sum("UPDATE Record" in given.get("command", "") for _, given in library.calls) == 1
