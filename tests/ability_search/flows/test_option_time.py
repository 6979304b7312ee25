"""Times in queries, and dates in chunks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from tests.ability_search.flows.asking import ask, ranking, sources
from tests.ability_search.flows.conftest import Network, Start, document, down
from tests.ability_search.flows.oracle import Oracle
from tests.ability_search.flows.stored import chunks

QUESTION = "release of the parser in March 2021"
TOPIC = "release of the parser"
MARCH = "release-2021-03"


FILLER = " ".join(f"word{n}" for n in range(90))
"""Makes notes about as long as a new collection expects, so that nothing is weighed anew later."""


def releases() -> list[dict[str, Any]]:
    """Sixty notes that only their dates tell apart, and one without a date."""
    months = [(year, month) for year in range(2018, 2023) for month in range(1, 13)]
    notes = [
        document(
            f"release-{year}-{month:02}",
            f"The release of the parser was on {date(year, month, 12):%B %d, %Y}. {FILLER}",
            metadata={"even": month % 2 == 0},
        )
        for year, month in months
    ]
    return [*notes, document("undated", f"The release of the parser was on a rainy day. {FILLER}")]


@pytest.fixture
async def network(start: Start) -> AsyncIterator[Network]:
    """Few of the notes in the collection ``docs`` are found by their words or meaning."""
    async with start(SEARCH_CANDIDATES="15") as running:
        await running.call("search-index", collection="docs", documents=releases())
        yield running


async def test_each_chunk_is_stored_with_its_own_dates(network: Network) -> None:
    review = "On 2025-01-31 and 2 Feb 2025: weeds."
    text = f"# Spring 2024\n\nSeeds.\n\n# Review\n\n{review}\n\n# Notes\n\nx"
    await network.call(
        "search-index",
        collection="garden",
        documents=[document("log.md", text, metadata={"tag": "2024"})],
        chunkStrategy="markdown-headers",
    )
    stored = await chunks(network, "garden")
    assert [(row["breadcrumb"], row["facets"]) for row in stored] == [
        ("Spring 2024", ['tag="2024"', "2024", "2024-03", "2024-04", "2024-05"]),
        ("Review", ['tag="2024"', "2025", "2025-01", "2025-02"]),
        ("Notes", ['tag="2024"']),
    ]
    days = [
        (date(2024, 3, 1), date(2024, 5, 31)),
        (date(2025, 1, 31),) * 2,
        (date(2025, 2, 2),) * 2,
    ]
    numbers = [[day.toordinal() - date(1970, 1, 1).toordinal() for day in each] for each in days]
    assert [row["dates"] for row in stored] == [numbers[0], [*numbers[1], *numbers[2]], []]
    await network.call("search-reindex", collection="garden")
    renewed = await chunks(network, "garden")
    kept = [(row["facets"], row["dates"]) for row in stored]
    assert [(row["facets"], row["dates"]) for row in renewed] == kept


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_chunks_of_the_time_asked_for_are_found_and_come_first(
    network: Network, mode: str
) -> None:
    answer = await ask(network, QUESTION, mode=mode)
    assert answer["understood"] == {"from": "2021-03-01", "to": "2021-03-31"}
    assert sources(answer)[0] == MARCH
    assert "dated" in answer["results"][0]["matchedVia"]
    assert {hit["score"] <= 1 for hit in answer["results"]} == {True}


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_the_share_of_time_is_what_is_documented(network: Network, mode: str) -> None:
    oracle = await Oracle.of(network, "docs", releases())
    information = sum(oracle._query_weights(TOPIC).values())
    rarest = math.log(1 + (61 - 1 + 0.5) / 1.5)
    weight = min(0.5, (2 / 3) / (2 / 3 + information / rarest))
    answer = await ask(network, QUESTION, mode=mode, limit=15, explain=True)
    told = answer["explain"]["understood"]
    assert told["topic"] == TOPIC
    assert told["spans"] == [{"kind": "time", "start": len(TOPIC) + 1, "end": len(QUESTION)}]
    closeness = {}
    for hit in answer["results"]:
        line = hit["explain"]["temporal"]
        closeness[hit["source"]] = line["closeness"]
        assert hit["score"] == line["after"]
        assert line["share"] == pytest.approx(weight)
        assert line["after"] == pytest.approx(
            (1 - weight) * line["before"] + weight * line["closeness"]
        )
        if mode != "hybrid":
            words = oracle.keyword(TOPIC, further="in March 2021")
            asked = words if mode == "keyword" else oracle.semantic(TOPIC)
            assert line["before"] == pytest.approx(asked[hit["chunkId"]], abs=1e-4)
        assert "feedback" not in hit["explain"]
    assert closeness[MARCH] == 1
    assert closeness["release-2021-04"] == pytest.approx(math.exp(-(12**2) / 450) / 2)


async def test_what_names_no_time_is_as_if_taken_literally(network: Network) -> None:
    for mode in ("hybrid", "semantic", "keyword"):
        plain = await ask(network, TOPIC, mode=mode, limit=20, explain=True)
        literal = await ask(network, TOPIC, mode=mode, limit=20, understand=False, explain=True)
        assert ranking(plain) == ranking(literal)
        assert "understood" not in plain
        assert "understood" not in plain["explain"]
        assert all("temporal" not in hit["explain"] for hit in plain["results"])


async def test_a_weight_of_zero_changes_nothing(network: Network) -> None:
    zero = {"weight": 0}
    literal = await ask(network, QUESTION, understand=False)
    assert "understood" not in literal
    assert ranking(await ask(network, QUESTION, temporal=zero)) == ranking(literal)
    ranged = await ask(network, QUESTION, temporal=zero, timeRange={"from": "2019-01-01"})
    assert ranking(ranged) == ranking(literal)
    assert "understood" not in ranged


async def test_the_weight_and_the_reach_of_dates_can_be_said(network: Network) -> None:
    options = {"temporal": {"weight": 1, "sigmaDays": 100}, "limit": 3}
    answer = await ask(network, QUESTION, **options)
    assert sources(answer)[0] == MARCH
    assert answer["results"][0]["score"] == 1
    assert set(sources(answer)[1:]) == {"release-2021-02", "release-2021-04"}
    assert 0.48 < answer["results"][2]["score"] <= 0.5


async def test_a_range_wins_over_the_query_and_needs_no_understanding(network: Network) -> None:
    for understand in (True, False):
        answer = await ask(
            network,
            QUESTION,
            timeRange={"from": "2019-07-01", "to": "2019-07-31T23:00:00Z"},
            understand=understand,
        )
        assert answer["understood"] == {"from": "2019-07-01", "to": "2019-07-31"}
        assert sources(answer)[0] == "release-2019-07"


async def test_times_count_from_when_the_question_is_asked(network: Network) -> None:
    for mode in ("hybrid", "semantic", "keyword"):
        answer = await ask(network, f"{TOPIC} last month", mode=mode, asOf="2021-04-20")
        assert answer["understood"] == {"from": "2021-03-01", "to": "2021-03-31"}
        assert sources(answer)[0] == MARCH
        assert "dated" in answer["results"][0]["matchedVia"]


async def test_the_day_of_asking_is_that_in_utc(network: Network) -> None:
    days = {
        "2021-03-12": "2021-03-12",
        "2021-03-12T23:30:00": "2021-03-12",
        "2021-03-12T23:30:00-02:00": "2021-03-13",
        "0001-01-01": "0001-01-01",
        "9999-12-31": "9999-12-31",
    }
    for asked, day in days.items():
        for collection in ("docs", "*"):
            answer = await network.call(
                "search-query", collection=collection, query=f"{TOPIC} today", asOf=asked
            )
            assert answer["understood"] == {"from": day, "to": day}


async def test_when_it_is_asked_changes_nothing_else(network: Network) -> None:
    for question in (TOPIC, QUESTION):
        asked = await ask(network, question, limit=20, asOf="2020-06-01", explain=True)
        plain = await ask(network, question, limit=20, explain=True)
        assert asked["results"] == plain["results"]
    answer = await ask(network, f"{TOPIC} last month", asOf="2021-04-20", understand=False)
    assert "understood" not in answer


async def test_an_end_of_a_range_may_be_open(network: Network) -> None:
    strong = {"weight": 0.9}
    late = await ask(network, TOPIC, timeRange={"from": "2022-06-01"}, temporal=strong, limit=7)
    assert late["understood"] == {"from": "2022-06-01"}
    assert set(sources(late)) == {f"release-2022-{month:02}" for month in range(6, 13)}
    early = await ask(network, TOPIC, timeRange={"to": "2018-02-20"}, temporal=strong, limit=2)
    assert early["understood"] == {"to": "2018-02-20"}
    assert set(sources(early)) == {"release-2018-01", "release-2018-02"}


async def test_what_has_no_date_counts_half_by_when_it_was_indexed(network: Network) -> None:
    today = datetime.now(UTC).date().isoformat()
    options: dict[str, Any] = {
        "timeRange": {"from": "2023-06-01", "to": today},
        "temporal": {"weight": 0.9},
        "explain": True,
    }
    answer = await ask(network, TOPIC, filter={"source": "undated"}, **options)
    assert answer["results"][0]["explain"]["temporal"]["closeness"] == 0.5
    dated = await ask(network, TOPIC, filter={"source": MARCH}, **options)
    assert dated["results"][0]["explain"]["temporal"]["closeness"] < 1e-3
    question = await ask(
        network, f"{TOPIC} since June 2023", filter={"source": "undated"}, explain=True
    )
    assert question["results"][0]["explain"]["temporal"]["closeness"] == 0


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_what_joins_obeys_the_filter(network: Network, mode: str) -> None:
    hidden = await ask(network, QUESTION, mode=mode, excludeSources=[MARCH], limit=50)
    assert hidden["count"]
    assert MARCH not in sources(hidden)
    even = await ask(network, QUESTION, mode=mode, filter={"metadata.even": True}, limit=50)
    assert "release-2021-04" in sources(even)[:2]
    assert all(int(source[-2:]) % 2 == 0 for source in sources(even))


async def test_pages_are_cut_from_one_list(network: Network) -> None:
    whole = await ask(network, QUESTION, limit=30)
    assert whole["count"] == 30
    pages = [await ask(network, QUESTION, limit=6, offset=offset) for offset in range(0, 30, 6)]
    assert [place for page in pages for place in ranking(page)] == ranking(whole)


async def test_several_collections_mean_the_same_time(network: Network) -> None:
    await network.call(
        "search-index",
        collection="more",
        documents=[document("note", "release of the parser, 2021-03-03"), *releases()[:20]],
    )
    answer = await network.call("search-query", collection="*", query=QUESTION)
    assert set(sources(answer)[:2]) == {MARCH, "note"}
    assert answer["understood"] == {"from": "2021-03-01", "to": "2021-03-31"}


async def test_a_look_at_the_first_hits_that_teaches_nothing_leaves_no_line(
    network: Network,
) -> None:
    await network.call(
        "search-index",
        collection="ops",
        documents=[document(f"of {day}", f"limits were raised 2021-02-{day}") for day in (20, 24)],
    )
    answer = await network.call(
        "search-query",
        collection="ops",
        query="limits that were raised",
        explain=True,
        temporal={"order": "newest"},
        prf={"minSimilarity": 1.0},
    )
    assert answer["timings"]["prf"] > 0
    for hit in answer["results"]:
        assert list(hit["explain"])[-1] == "order"
        score = hit["explain"].pop("fusion")["score"]
        for line in hit["explain"].values():
            assert line["before"] == score
            score = line["after"]
        assert score == hit["score"]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_the_newest_and_the_oldest_of_what_is_as_relevant_come_first(
    network: Network, mode: str
) -> None:
    dates = ["2021-05-01", "2019-01-31", "2023-08-09", "2999-01-01", None]
    await network.call(
        "search-index",
        collection="log",
        documents=[
            document(f"of {date}", "the parser was released", title="", metadata={"date": date})
            for date in dates
        ],
    )

    async def found(query: str, **options: Any) -> Any:
        asked = {"query": query, "mode": mode, "explain": True} | options
        return await network.call("search-query", collection="log", **asked)

    # What is yet to come is as if it had no date, and what has none was stored on one day.
    newest = sources(await found("latest release of the parser"))
    assert set(newest[1:3]) == {"of 2999-01-01", "of None"}
    assert newest[::3] == ["of 2023-08-09", "of 2021-05-01"]
    assert sources(await found("earliest release of the parser"))[::4] == newest[::-4]
    ordered = await found("release of the parser", temporal={"order": "oldest"})
    assert sources(ordered)[0] == "of 2019-01-31"
    assert ordered["explain"]["understood"]["order"] == "oldest"
    assert ordered["understood"] == {"order": "oldest"}
    for hit in ordered["results"]:
        line = hit["explain"]["order"]
        moved = line["before"] + line["share"] * line["gain"]
        assert line["after"] == pytest.approx(max(0.0, moved))
    for literal in ({"temporal": {"weight": 0}}, {"understand": False}):
        taken = await found("latest release of the parser", **literal)
        assert not any("order" in hit["explain"] for hit in taken["results"])
    then = await found("latest release of the parser", asOf="2021-06-01")
    assert sources(then)[0] == "of 2021-05-01"


async def test_without_an_embedder_words_and_dates_are_left(network: Network) -> None:
    network.model.failure = down
    answer = await ask(network, QUESTION)
    assert answer["degraded"]["mode"] == "keyword"
    assert sources(answer)[0] == MARCH


async def test_the_topic_is_embedded_and_searched_for(network: Network) -> None:
    network.model.texts.clear()
    answer = await ask(network, QUESTION, highlights=True)
    assert network.model.texts == [TOPIC]
    marked = {mark["text"] for mark in answer["results"][0]["highlights"]}
    assert {"release", "parser"} <= marked
    assert "March" not in marked


async def test_a_time_of_asking_that_is_none_is_refused(network: Network) -> None:
    for wrong in ("next week", "2021-02-30", " ", 20210412, "2021-04-12T25:00:00Z"):
        answer = await network.refused("search-query", collection="docs", query="x", asOf=wrong)
        assert answer["code"] == "invalid_input"
        assert answer["error"].startswith("asOf: "), answer
        assert answer["hint"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"from": "yesterday"}, "timeRange.from"),
        ({"to": "2021-02-30"}, "timeRange.to"),
        ({"from": "2021-02-02", "to": "2021-02-01"}, "timeRange"),
        ({}, "timeRange"),
    ],
)
async def test_a_range_that_is_none_is_refused(
    network: Network, given: dict[str, str], field: str
) -> None:
    answer = await network.refused("search-query", collection="docs", query="x", timeRange=given)
    assert answer["code"] == "invalid_input"
    assert answer["error"].startswith(f"{field}: ") or f" {field}" in answer["error"], answer
