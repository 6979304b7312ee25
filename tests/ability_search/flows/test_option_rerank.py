"""``rerank``: rules on fields raise scores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES, hits_of, scores_of
from tests.ability_search.flows.conftest import Network, Start, document

METADATA: list[dict[str, Any]] = [
    {"category": "Network Security", "stage": "beta", "year": 2024},
    {"category": ["operations", "security"], "stage": "Stable", "year": 2026},
    {"category": "billing", "stage": ["old", "stable"], "year": "2026-01-31"},
    {"stage": True, "nested": {"level": 3}},
    {"category": "security", "stage": "stable", "year": 2026, "a.b": "dotted"},
]


RULES: list[tuple[dict[str, Any], list[float]]] = [
    ({"category": {"weight": 0.5, "rules": {"contains": "SECUR"}}}, [1.5, 1.5, 1, 1, 1.5]),
    ({"metadata.stage": {"weight": 2, "rules": {"priority": "stable"}}}, [1, 3, 3, 1, 3]),
    ({"stage": {"weight": 2, "rules": {"priority": True}}}, [1, 1, 1, 3, 1]),
    (
        {"year": {"weight": 0.6, "rules": {"sort": "desc"}}},
        [1.2, 1.4, 1.6, 1, 1.4],
    ),
    ({"year": {"weight": 0.6, "rules": {"sort": "asc"}}}, [1.6, 1.4, 1.2, 1, 1.4]),
    ({"nested.level": {"weight": 1, "rules": {"priority": 3.0}}}, [1, 1, 1, 2, 1]),
    ({"a\\.b": {"weight": 1, "rules": {"contains": "Dot"}}}, [1, 1, 1, 1, 2]),
    ({"source": {"weight": 1, "rules": {"priority": "D3"}}}, [1, 1, 1, 2, 1]),
    ({"content": {"weight": 1, "rules": {"contains": "number 2"}}}, [1, 1, 2, 1, 1]),
    ({"nowhere": {"weight": 1, "rules": {"sort": "desc"}}}, [1, 1, 1, 1, 1]),
]
"""Rules on one field, and the boost of each chunk."""


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Five chunks about cats, the more often the lower their number, with metadata."""
    async with start() as network:
        documents = [
            document(f"d{n}", f"{'cats ' * (9 - n)}and number {n}", metadata=metadata)
            for n, metadata in enumerate(METADATA)
        ]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


async def test_a_rule_multiplies_scores(library: Network) -> None:
    for mode in MODES:
        plain = scores_of(await hits_of(library, mode=mode))
        for rule, boosts in RULES:
            (weight,) = (each["weight"] for each in rule.values())
            ruled = scores_of(await hits_of(library, mode=mode, rerank=rule))
            assert ruled == pytest.approx(
                {f"d{n}": plain[f"d{n}"] * boost / (1 + weight) for n, boost in enumerate(boosts)}
            ), (mode, rule)


async def test_rules_stack_and_explain_themselves(library: Network) -> None:
    rules = {
        "category": {"weight": 0.5, "rules": {"contains": "security", "priority": "security"}},
        "stage": {"weight": 1, "rules": {"priority": "stable"}},
    }
    plain = scores_of(await hits_of(library))
    hits = await hits_of(library, rerank=rules, explain=True)
    factors = {"d0": 1.5, "d1": 1.5 * 1.5 * 2, "d2": 2, "d3": 1, "d4": 1.5 * 1.5 * 2}
    for hit in hits:
        told = hit["explain"]["rules"]
        assert told["after"] == hit["score"]
        assert told["before"] == plain[hit["source"]]
        first, second = told["boosts"]["metadata.category"], told["boosts"]["metadata.stage"]
        assert first * second == pytest.approx(factors[hit["source"]])
        assert hit["score"] == pytest.approx(told["before"] * factors[hit["source"]] / 4.5)
    assert hits[0]["source"] == "d1"


async def test_rules_on_a_field_by_both_its_names_stack(library: Network) -> None:
    rule = {"weight": 1, "rules": {"priority": "stable"}}
    rules = {"stage": rule, "metadata.stage": rule}
    hits = await hits_of(library, rerank=rules, explain=True)
    told = {hit["source"]: hit["explain"]["rules"]["boosts"]["metadata.stage"] for hit in hits}
    assert told == {"d0": 1, "d1": 4, "d2": 4, "d3": 1, "d4": 4}


async def test_when_it_was_indexed_counts_as_it_is_shown(library: Network) -> None:
    (shown,) = {hit["createdAt"] for hit in await hits_of(library)}
    rule = {"createdAt": {"weight": 1, "rules": {"contains": shown[:10], "priority": shown}}}
    plain = scores_of(await hits_of(library))
    assert scores_of(await hits_of(library, rerank=rule)) == plain
    other = {"createdAt": {"weight": 1, "rules": {"contains": "1970"}}}
    halved = {source: score / 2 for source, score in plain.items()}
    assert scores_of(await hits_of(library, rerank=other)) == halved


async def test_without_weight_nothing_changes(library: Network) -> None:
    rules = {"category": {"weight": 0, "rules": {"contains": "security", "sort": "asc"}}}
    for mode in MODES:
        plain = await hits_of(library, mode=mode, explain=True)
        assert await hits_of(library, mode=mode, explain=True, rerank=rules) == plain


async def test_each_of_several_collections_is_ordered_by_itself(library: Network) -> None:
    await library.call(
        "search-index",
        collection="other",
        documents=[document("o", "cats cats", metadata={"year": 1990})],
    )
    rule = {"year": {"weight": 1, "rules": {"sort": "desc"}}}
    hits = await hits_of(library, collection="*", rerank=rule, explain=True)
    boosts = {hit["source"]: hit["explain"]["rules"]["boosts"] for hit in hits}
    assert boosts["o"] == boosts["d2"] == {"metadata.year": 2}


async def test_filters_exclusions_and_pages_hold(library: Network) -> None:
    rule = {"category": {"weight": 3, "rules": {"contains": "security"}}}
    whole = await hits_of(
        library, rerank=rule, excludeSources=["d1"], filter={"metadata.year": 2026}
    )
    assert [hit["source"] for hit in whole] == ["d4"]
    whole = await hits_of(library, rerank=rule)
    pages = [await hits_of(library, rerank=rule, limit=2, offset=n) for n in (0, 2, 4)]
    assert [hit for page in pages for hit in page] == whole


async def test_the_floor_is_on_what_the_arms_say(library: Network) -> None:
    plain = await hits_of(library, mode="keyword")
    floor = plain[2]["score"]
    rule = {"category": {"weight": 3, "rules": {"contains": "security"}}}
    kept = await hits_of(library, mode="keyword", minScore=floor, rerank=rule)
    assert {hit["source"] for hit in kept} == {hit["source"] for hit in plain[:3]}


async def test_a_rule_without_anything_to_look_for_is_refused(library: Network) -> None:
    for rules, place in (({}, "rerank.year.rules"), ({"contains": " "}, "rerank.year")):
        failed = await library.refused(
            "search-query", collection="docs", query="x", rerank={"year": {"rules": rules}}
        )
        assert failed["code"] == "invalid_input"
        assert place in failed["error"]
