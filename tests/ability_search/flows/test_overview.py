"""The parts of notes-overview: chunk sizes, growth, a map."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document
from tests.ability_search.flows.stored import chunks, command, record, services_of

from ability_search.extensions.notes import overview
from ability_search.extensions.notes.note_tools import CollectionMap, TokenHistogram
from ability_search.extensions.notes.overview import measure
from ability_search.store.arcadedb.core import source_type

EVERYTHING = ["tokens", "growth", "map"]
SEA = "the ship sails over the sea with wind in its sail and the sailor at the helm of the ship"
BREAD = "knead dough of flour water salt and yeast then bake bread in a hot oven until brown"
DAYS = ("2024-02-29", "2024-12-31", "2025-01-01", "2026-07-05")


async def included(network: Network, *include: str, **further: Any) -> Any:
    return await network.call("notes-overview", collection="docs", include=list(include), **further)


async def index(network: Network, *documents: dict[str, Any], **options: Any) -> None:
    await network.call(
        "search-index", collection="docs", documents=list(documents), maxTokens=32, **options
    )


def about(topic: str, count: int) -> list[dict[str, Any]]:
    """Documents of one chunk each, that share most of their words."""
    name = topic.split()[1]
    return [document(f"{name}{n}", f"{topic} number{n}", title="note") for n in range(count)]


@pytest.mark.engine
async def test_sizes_and_growth_are_those_of_the_stored_chunks(network: Network) -> None:
    repeated = document("again", SEA), document("once more", SEA)
    texts = [document(f"d{n}", " ".join([BREAD] * (n + 1))) for n in range(5)]
    await index(network, *texts, *repeated, kinds=["title"], dedupThreshold=0.99)
    kind = (await record(network, "docs")).type
    for day, source in zip(DAYS, ("d0", "d1", "d2", "d3"), strict=True):
        at = round(datetime.fromisoformat(f"{day}T23:59:59Z").timestamp() * 1000)
        changes = f"UPDATE `{kind}` SET createdAt = :at WHERE source = :source"
        await command(network, changes, at=at, source=source)
        changes = f"UPDATE `{source_type(kind)}` SET indexedAt = :at WHERE source = :source"
        await command(network, changes, at=at, source=source)
    await command(network, "UPDATE Collection SET fields.created_at = 0")
    stored = await chunks(network, "docs")
    indexed = [(row["createdAt"] // 86_400_000, row["source"]) for row in stored]
    days, sources = (Counter(day for day, _ in each) for each in (indexed, set(indexed)))

    info = await included(network, "tokens", "growth")
    bins = info["tokens"]["bins"]
    for each in bins:
        sizes = range(each["minTokens"], each["maxTokens"] + 1)
        assert each["chunks"] == sum(row["tokens"] in sizes for row in stored)
    assert [one["maxTokens"] + 1 for one in bins[:-1]] == [one["minTokens"] for one in bins[1:]]
    assert bins[0]["chunks"] and bins[-1]["chunks"]
    assert (info["tokens"]["counted"], info["tokens"]["sampled"]) == (len(stored), False)
    growth = info["growth"]
    assert growth["unit"] == "day"
    assert {period["start"] for period in growth["periods"]} >= {f"{d}T00:00:00.000Z" for d in DAYS}
    told = {_day(period["start"]): period for period in growth["periods"]}
    assert {day: period["chunks"] for day, period in told.items()} == days
    assert {day: period["sources"] for day, period in told.items()} == sources
    assert list(told) == sorted(told)


def _day(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp()) // 86_400


async def test_a_map_separates_topics_and_is_the_same_each_time(network: Network) -> None:
    documents = [*about(SEA, 30), *about(BREAD, 30)]
    await index(network, *documents)
    await index(network, document("again", documents[0]["content"], title="note"), dedupThreshold=1)
    drawn = (await included(network, "map"))["map"]
    assert (len(drawn["points"]), drawn["chunks"]) == (60, 60)
    assert drawn["explainedVariance"][0] > 0.5 > drawn["explainedVariance"][1] > 0
    sides = {point["source"]: point["x"] > 0 for point in drawn["points"]}
    assert sides.keys() == {each["source"] for each in documents}
    assert len({sides[each["source"]] for each in documents[:30]}) == 1
    assert len({sides[each["source"]] for each in documents[30:]}) == 1
    assert sides[documents[0]["source"]] != sides[documents[-1]["source"]]
    (first,) = (p for p in drawn["points"] if p["source"] == documents[0]["source"])
    assert first["chunkId"] == f"docs:{first['source']}:0"
    assert (first["title"], first["excerpt"]) == ("note", documents[0]["content"])

    small = (await included(network, "map", mapPoints=10))["map"]
    assert (len(small["points"]), small["chunks"]) == (10, 60)
    chosen = {point["chunkId"] for point in small["points"]}
    await network.call("search-delete", collection="docs")
    await index(network, *reversed(documents))
    again = (await included(network, "map", mapPoints=10))["map"]
    assert {point["chunkId"] for point in again["points"]} == chosen


async def test_what_has_no_shape_yet_is_told_all_the_same(network: Network) -> None:
    await index(network, document("a", "one\n\n  \ntext"))
    info = await included(network, *EVERYTHING)
    assert [each["chunks"] for each in info["tokens"]["bins"]] == [1]
    (period,) = info["growth"]["periods"]
    assert (info["growth"]["unit"], period["chunks"], period["sources"]) == ("minute", 1, 1)
    (point,) = info["map"]["points"]
    assert (point["x"], point["y"], point["excerpt"]) == (0, 0, "one text")
    assert info["map"]["explainedVariance"] == [0, 0]

    await network.call("search-delete", collection="docs", source="a")
    info = await included(network, *EVERYTHING)
    assert info["tokens"] == {"bins": [], "counted": 0, "sampled": False}
    assert info["growth"]["periods"] == []
    assert info["map"] == {"points": [], "chunks": 0, "explainedVariance": [0, 0]}
    assert not {"growth", "map"} & (await included(network, "tokens")).keys()
    for wrong in (["age"], []):
        refused = await network.refused("notes-overview", collection="docs", include=wrong)
        assert (refused["code"], "include" in refused["error"]) == ("invalid_input", True)


@pytest.mark.engine
async def test_many_chunks_are_sampled_with_keys_and_without(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_COUNTED", 11)
    monkeypatch.setattr(overview, "_SAMPLE", 7)
    await index(network, *about(SEA, 12))
    services = services_of(network, tmp_path)
    collection = await record(network, "docs")
    found = await measure(
        services.ports.store,
        services.ports.registry,
        collection,
        {"tokens", "map"},
        points=5,
    )
    assert found.keys() == {"tokens", "map"}
    sizes, drawn = found["tokens"], found["map"]
    assert isinstance(sizes, TokenHistogram)
    assert isinstance(drawn, CollectionMap)
    assert (sizes.counted, sizes.sampled) == (7, True)
    assert (len(drawn.points), drawn.chunks) == (5, 12)
