"""Invariants of search-query under any combination of options, drawn from its JSON schema."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.ability_search.flows.conftest import MODEL, Network, document, down, starting
from tests.examples import examples

from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.predicate import matches
from ability_search.filters.tree import combine
from ability_search.tools.inputs import QueryInput
from kadi_client import Call, Connection, Tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

Answer = dict[str, Any]

SCHEMA = QueryInput.model_json_schema()
CODES = {"invalid_input", "not_found", "model_mismatch", "embedding_unavailable"}
"""What a query of this file may be refused with, in the schema as its options are."""
OTHER_MODEL = "words-32"

SECRET, STRANGER = "sesame", "intruder"
"""Words that only chunks below ``secret/`` have, or those of another tenant."""

_sources = st.sampled_from(["guide/**", "**/*.md", "guide/cats.md", "secret/*", "*", "nowhere/?"])
POOLS: Mapping[str, st.SearchStrategy[Any]] = {
    "collection": st.sampled_from(
        ["docs", "notes", "copies", ["docs", "notes"], ["copies", "docs", "nowhere"], "*"]
    ),
    "query": st.sampled_from(
        [
            "cats and dogs", "sleeping cats besides dogs", "what changed last March?", "cats -dogs",
            'cats without "wild dogs"', "in 2024 or 2025", "ERR_4012", "猫", "cats", "dogs",
            "not about cats", "?!", "how do cats sleep in summer and what do dogs eat in winter",
            "since May 2024", "C++ (foo", "unheardof", "plan", "tigers",
        ]
    ),
    "queries": st.lists(
        st.sampled_from(["sleeping cats", "dogs in winter", "猫", "cats -dogs", "?!", "in 2024"]),
        min_size=1, max_size=3,
    ),
    "limit": st.integers(1, 8),
    "offset": st.integers(0, 9),
    "model": st.sampled_from([MODEL, OTHER_MODEL]),
    "filter": st.sampled_from(
        [
            {"metadata.tenant": "ours"}, {"$not": {"metadata.tenant": "theirs"}},
            {"metadata.year": {"$gte": 2024}}, {"kind": "document"}, {"metadata.none": 1},
            {"createdAt": {"$gte": "2020-01-01"}}, {"$or": [{"title": "Cats"}, {"source": "b"}]},
            {"metadata.tags": {"$in": ["pets", "wild"]}, "source": {"$like": "guide/%"}},
        ]
    ),
    "sources": st.lists(_sources, min_size=1, max_size=2),
    "excludeSources": st.lists(_sources | st.just("secret/**"), min_size=1, max_size=2),
    "hypotheticalAnswer": st.sampled_from(["dogs sleep in summer", "tigers"]),
    "language": st.sampled_from(["english", "german", "klingon"]),
    "agentId": st.sampled_from(["ann", "bob"]),
    "from": st.sampled_from(["2024-01-01", "2024-03-01T10:00:00Z", "2025-06-30", "yesterday"]),
    "to": st.sampled_from(["2024-12-31", "2026-11-01", "1999-01-01"]),
    "asOf": st.sampled_from(
        ["2025-04-30T23:30:00-02:00", "2024-03-31", "0001-01-01", "9999-12-31", "yesterday"]
    ),
    "exclude": st.lists(st.sampled_from(["dogs", "winter", "cats"]), max_size=2),
    "kinds": st.lists(st.sampled_from(["references", "derives_from"]), min_size=1, max_size=2),
    "fields": st.lists(
        st.sampled_from(["title", "content", "tags", "metadata.none", "source"]),
        min_size=1, max_size=3,
    ),
    "rerank": st.dictionaries(
        st.sampled_from(["title", "year", "metadata.tags", "createdAt", "content", "mixed"]),
        st.deferred(lambda: drawn(SCHEMA["$defs"]["FieldRule"])),
        max_size=3,
    ),
    "contains": st.sampled_from(["CAT", "pets", "20"]),
    "priority": st.sampled_from(["pets", 2024, 2024.0, True, "Cats"]),
    "maxResultTokens": st.sampled_from([1, 300, 600, 2000, 10_000_000]),
    "maxPerSource": st.integers(1, 4),
    "minSignals": st.integers(1, 3),
    "field": st.sampled_from(["createdAt", "metadata.year", "tags", "title"]),
    "useful": st.sampled_from([[], ["docs:cats.md:0"]]),
    "notUseful": st.sampled_from([[], ["docs:dogs.md:0", "none:x:0"]]),
}  # fmt: skip
"""Values of properties that the schema alone would make nonsense of."""


def drawn(schema: Mapping[str, Any], name: str = "") -> st.SearchStrategy[Any]:
    """Values that fit a JSON schema."""
    if "$ref" in schema:
        return drawn(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([drawn(each, name) for each in schema["anyOf"]])
    if name in POOLS and schema["type"] != "null":
        return POOLS[name]
    if schema["type"] == "object":
        return _objects(schema)
    if schema["type"] == "array":
        most = min(schema.get("maxItems", 4), 4)
        return st.lists(drawn(schema["items"], name), min_size=1, max_size=most)
    return _scalars(schema, name)


def _scalars(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    low, high = schema.get("minimum", 0.01), schema.get("maximum", 1.0)
    by_type = {
        "integer": lambda: st.integers(low, min(high, low + 40)),
        "number": lambda: st.sampled_from([low, low + (high - low) / 10, (low + high) / 2, high]),
        "boolean": st.booleans,
        "null": st.none,
    }
    assert schema["type"] in by_type, f"{name} needs a pool of values"
    return by_type[schema["type"]]()


def _objects(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "properties" not in schema:
        names = drawn(schema["propertyNames"] | {"type": "string"})
        return st.dictionaries(names, drawn(schema["additionalProperties"]), max_size=3)
    values = {name: drawn(each, name) for name, each in schema["properties"].items()}
    required = {name: values.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=values)


def requests() -> st.SearchStrategy[Answer]:
    """Inputs of search-query, each with a few options and often with something to keep secret."""
    properties = SCHEMA["properties"]
    optional = sorted(properties.keys() - {"collection", "query", "mode", "limit"})
    always = {name: drawn(properties[name], name) for name in ("collection", "query", "mode")}
    always["limit"] = POOLS["limit"]
    kept = {"excludeSources": ["secret/**"]}
    own = {"filter": {"metadata.tenant": "ours"}}
    guards = st.sampled_from([{}, {}, kept, own, kept | own])
    chosen = st.lists(st.sampled_from(optional), unique=True, max_size=9).flatmap(
        lambda names: st.fixed_dictionaries(
            always | {name: drawn(properties[name], name) for name in names}
        )
    )
    return st.builds(lambda request, guard: request | guard, chosen, guards)


def long(topic: str, chunks: int) -> str:
    """A text with headings and dates, cut into several chunks."""
    parts = [
        f"# Part {n} of {topic}\n\n{topic} sleep in summer, on {n + 1} March 2024 and in May"
        f" 202{n % 7}. They eat in winter, see ERR_401{n}.\n\nMore of {topic} {'and more ' * n}.\n"
        for n in range(chunks)
    ]
    return "\n".join(parts)


def texts() -> list[Answer]:
    """Documents that link to each other, some of them secret, some of another tenant."""
    ours, theirs = {"tenant": "ours"}, {"tenant": "theirs"}
    links = [{"target": "secret/plan.md"}, {"target": "guide/dogs.md", "kind": "derives_from"},
             {"target": "theirs/cats.md"}]  # fmt: skip
    found = [
        document("guide/cats.md", long("cats", 6), title="Cats", links=links,
                 metadata={**ours, "year": 2024, "tags": ["pets"], "mixed": 1}),
        document("guide/dogs.md", long("dogs", 5),
                 metadata={**ours, "year": 2025, "tags": ["pets", "wild"], "mixed": "one"}),
        document("secret/plan.md", f"cats and dogs {SECRET} plan " * 12, links=links[1:],
                 metadata={**ours, "year": 2024, "tags": [SECRET]}),
        document("secret/cats.md", f"# cats\n\n{long(f'cats {SECRET}', 3)}", metadata=ours),
        document("theirs/cats.md", long(f"cats {STRANGER}", 3), metadata={**theirs, "year": 2024}),
        document("guide/cats.md#summary", "cats sleep, summed up", kind="summary",
                 of="guide/cats.md", metadata=ours),
        document("secret/cats.md#summary", f"cats sleep {SECRET}", kind="summary",
                 of="guide/cats.md", metadata=ours),
        document("guide/dogs.md#title", "dogs of the house", kind="title", of="guide/dogs.md",
                 metadata=theirs),
        document("guide/none.md", "猫在睡觉 C++ tigers", metadata={**ours, "mixed": True}),
        document("bare.md", "cats"),
    ]  # fmt: skip
    return found + [
        document(f"filler{n}.md", f"dogs {n} and tigers in 202{n}", metadata=ours) for n in range(7)
    ]


class Library:
    """Three collections, and what filters look at in them, by source."""

    def __init__(self, network: Network, rows: Mapping[str, Answer]) -> None:
        self.network = network
        self.rows = rows


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def library(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    """``docs``; ``notes`` with another model; ``copies`` with its near-duplicates set aside."""
    start = starting(None, tmp_path_factory.mktemp("home"))
    settings = {"SEARCH_EMBEDDING_ATTEMPTS": "1", "SEARCH_EMBEDDING_BREAKER_FAILURES": "1000"}
    tools = [
        Tool("rerank", "Read.", {"type": "object"}, reread),
        Tool("chat-completion", "Talk.", {"type": "object"}, talk),
    ]
    async with start(SEARCH_CANDIDATES="10", **settings) as network:
        network.model.models[OTHER_MODEL] = 32
        documents = texts()
        for collection, options in (
            ("docs", {}),
            ("notes", {"model": OTHER_MODEL, "language": "german"}),
            ("copies", {"dedupThreshold": 0.97}),
        ):
            await network.call(
                "search-index", collection=collection, documents=documents, maxTokens=40, **options
            )
        rows = {
            text["source"]: {"kind": "document", "createdAt": 2**42} | text for text in documents
        }
        async with Connection(network.url, name="models", role="ability", tools=tools):
            yield Library(network, rows)


async def reread(tool_input: Answer, _call: Call) -> Answer:
    """The scores of a reranker that sees something else in texts than the arms do."""
    rows = [
        {"index": index, "relevance_score": zlib.crc32(text.encode()) % 1000 / 1000}
        for index, text in enumerate(tool_input["documents"])
    ]
    return {"results": rows}


async def talk(_tool_input: Answer, _call: Call) -> Answer:
    message = {"role": "assistant", "content": "tigers\nsleep in summer"}
    return {"choices": [{"index": 0, "message": message}]}


async def ask(library: Library, request: Answer) -> Answer:
    """The answer, which is one of those declared."""
    network = library.network
    answer: Answer = await network.client.invoke("search-query", request, timeout=60, check=False)
    if answer.get("success") is False:
        assert answer["code"] in CODES, answer
    else:
        network.check("search-query", answer)
    return answer


def assert_sound(answer: Answer, request: Answer) -> None:
    """Scores order the hits, which are neither more than wanted nor twice the same.

    Of several that score 0, those come first that a search of less depth would find.
    """
    hits = answer["results"]
    assert answer["count"] == len(hits) <= request["limit"]
    order = [(-hit["score"], hit["chunkId"] if hit["score"] else "") for hit in hits]
    assert order == sorted(order)
    assert all(0 <= hit["score"] <= 1 for hit in hits)
    assert len({hit["chunkId"] for hit in hits}) == len(hits)
    omitted = answer.get("budget", {}).get("omitted", ())
    for hit in hits:
        assert hit["matchedVia"]
        for detail in ("explain", "highlights"):
            wanted = bool(request.get(detail)) and detail not in omitted
            assert (detail in hit) == wanted or hit.get("truncated")
    most = request.get("maxPerSource")
    sources = [(hit.get("collection"), hit["source"]) for hit in hits]
    assert most is None or all(sources.count(each) <= most for each in sources)


def assert_private(library: Library, answer: Answer, request: Answer) -> None:
    """Nothing is shown, or told, of what filters and globs leave out."""
    fits = combine(
        parse_filter(request.get("filter") or {}),
        source_filter(request.get("sources"), request.get("excludeSources")),
    )
    assert all(matches(fits, library.rows[hit["source"]]) for hit in answer["results"])
    told = json.dumps([answer["results"], answer.get("explain")])
    if not any(matches(fits, row) for name, row in library.rows.items() if "secret/" in name):
        assert SECRET not in told
        assert "secret/" not in told
    if not matches(fits, library.rows["theirs/cats.md"]):
        assert STRANGER not in told


def assert_above(answer: Answer, request: Answer) -> None:
    """The floor of ``minScore`` holds."""
    floor = request.get("minScore")
    mode = answer.get("degraded", answer)["mode"]
    if floor is not None and mode != "keyword":
        assert all(hit["scores"]["semantic"] >= floor - 1e-6 for hit in answer["results"])


def assert_shown(answer: Answer, request: Answer) -> None:
    """Contexts hold their hits, and texts fit into the budget."""
    for hit in answer["results"]:
        ids = {hit["chunkId"], *hit.get("merged", ())}
        if "context" in hit:
            assert ids <= set(hit["context"]["chunks"])
        assert "expand" in request or not hit.keys() & {"context", "merged"}
    budget = answer.get("budget")
    assert (budget is None) == (request.get("maxResultTokens") is None)
    if budget is not None:
        assert budget["maxTokens"] == request["maxResultTokens"]
        least = len(answer["results"]) <= 1  # at least one hit, whatever the budget
        assert budget["tokens"] <= budget["maxTokens"] or least
        left_out = {cut["chunkId"] for cut in budget["cut"] if cut["what"] == "hit"}
        assert not left_out & {hit["chunkId"] for hit in answer["results"]}


def chunk_ids(answer: Answer) -> list[str]:
    """Of the hits, and of those that are merged into them."""
    return [id_ for hit in answer["results"] for id_ in (hit["chunkId"], *hit.get("merged", ()))]


def assert_explained(answer: Answer) -> None:
    """Every line begins where the one before ends, and the last one ends at the score."""
    omitted = answer.get("budget", {}).get("omitted", ())
    for hit in answer["results"] if "explain" not in omitted else ():
        score = hit["explain"]["fusion"]["score"]
        for line in hit["explain"].values():
            if "after" in line:
                assert line["before"] == score
                score = line["after"]
        assert score == hit["score"]


def ids(answer: Answer) -> list[str]:
    return [hit["chunkId"] for hit in answer["results"]]


async def check(library: Library, request: Answer) -> Answer:
    """Ask, ask for an explanation, turn the page, and ask for both pages at once."""
    answer = await ask(library, request)
    if answer.get("success") is False:
        return answer
    assert_all(library, answer, request)
    if (request.get("decay") or {}).get("agentId"):
        return answer  # it has been shown something, which counts from now on
    explained = {**request, "explain": True}
    told = await ask(library, explained)
    assert_all(library, told, explained)
    assert_explained(told)
    if "omitted" not in told.get("budget", {}):
        assert chunk_ids(told) == chunk_ids(answer)
    further = {**request, "offset": (request.get("offset") or 0) + request["limit"]}
    page = await ask(library, further)
    assert_all(library, page, further)
    assert not set(chunk_ids(answer)) & set(chunk_ids(page))
    if not request.get("maxResultTokens"):
        both = await ask(library, {**request, "limit": 2 * request["limit"]})
        assert ids(both) == ids(answer) + ids(page)
    return answer


def assert_all(library: Library, answer: Answer, request: Answer) -> None:
    assert_sound(answer, request)
    assert_private(library, answer, request)
    assert_above(answer, request)
    assert_shown(answer, request)


SUNKEN = {
    "collection": ["docs"],
    "query": "cats on zebras, quantum rivers and unheardof klingon opera in space",
    "mode": "keyword",
    "limit": 8,
    "exclude": ["cats"],
}
"""So many hits score 0 that those of a deeper search do, too."""


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, phases=[Phase.explicit, Phase.generate])
@example(  # hits that are merged are missing among those that variety is picked from
    request={
        "collection": "docs",
        "query": "since May 2024",
        "mode": "semantic",
        "limit": 7,
        "offset": 7,
        "filter": {"metadata.tenant": "ours"},
        "expand": {},
        "diversity": 0.5,
    },
    without_model=False,
)
@example(  # the second page has more candidates, of which the reranker reads no more
    request={
        "collection": "notes",
        "query": "C++ (foo",
        "mode": "hybrid",
        "limit": 7,
        "offset": 2,
        "reranker": {},
    },
    without_model=False,
)
@example(  # the second page has more candidates that are learned from
    request={
        "collection": "*",
        "query": "cats",
        "mode": "keyword",
        "limit": 7,
        "prf": {"chunks": 12, "terms": 26},
        "expand": "section",
        "excludeSources": ["secret/**"],
    },
    without_model=False,
)
@example(request=SUNKEN, without_model=False)
@example(request=SUNKEN | {"collection": "docs", "reranker": {"top": 2}}, without_model=False)
@given(request=requests(), without_model=st.sampled_from([False] * 9 + [True]))
async def test_any_combination(library: Library, request: Answer, without_model: bool) -> None:
    library.network.model.failure = down if without_model else None
    await check(library, request)
