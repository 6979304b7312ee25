"""A client notices what a store must not do: lose, repeat, mix, keep, hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos.callers import Outcome
from chaos.clients import Client
from chaos.ledger import Ledger
from chaos.stack_process import StackProcess
from chaos.steps import SOURCES, Parameters, Step
from jsonschema import Draft202012Validator

from chaos import clients

COLLECTION = "c0-a"
Hit = dict[str, Any]


class Shelf:
    """A way to call the tools that keeps documents in memory; ``fail`` fails calls after them.

    ``change`` alters the hits of every search.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Hit] = {}
        self.fail: Callable[[str], Outcome | None] = lambda _tool: None
        self.ignored: set[str] = set()
        """Tools that do nothing, and say that they did it."""
        self.change: Callable[[list[Hit]], list[Hit]] = lambda hits: hits

    async def call(self, tool: str, tool_input: dict[str, Any], timeout: float) -> Outcome:
        answer = getattr(self, tool.replace("-", "_"))(tool_input)
        return self.fail(tool) or Outcome(answer, 0.001)

    def search_index(self, given: dict[str, Any]) -> dict[str, Any]:
        blank = [each for each in given["documents"] if not each["content"].strip()]
        if "search-index" not in self.ignored:
            for document in given["documents"]:
                if document not in blank:
                    self.documents[document["source"]] = document
        return {"failed": [{"source": b["source"], "code": "invalid_input"} for b in blank]}

    def search_delete(self, given: dict[str, Any]) -> dict[str, Any]:
        if "search-delete" not in self.ignored:
            gone = [given["source"]] if "source" in given else list(self.documents)
            for source in gone:
                self.documents.pop(source, None)
        return {"deleted": 1}

    def search_query(self, given: dict[str, Any]) -> dict[str, Any]:
        words = given["query"].split()[:1]
        hits = [
            hit
            for source in self.documents
            for hit in self.chunks(source)
            if any(word in hit["title"] or word in hit["content"] for word in words)
        ]
        hits = self.change(hits)[: given["limit"]]
        return {"results": hits, "count": len(hits)}

    def search_similar(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"sourceChunk": given["chunkId"], "results": []}

    def search_collection_info(self, given: dict[str, Any]) -> dict[str, Any]:
        chunks = sum(len(self.chunks(source)) for source in self.documents)
        return {"sources": sorted(self.documents), "chunks": chunks}

    def chunks(self, source: str) -> list[Hit]:
        document = self.documents[source]
        text = document["content"]
        texts = [text[start : start + 300] for start in range(0, len(text), 300)]
        return [
            {
                "chunkId": f"{COLLECTION}:{source}:{number}",
                "source": source,
                "title": document["title"],
                "content": text,
                "metadata": document["metadata"],
                "chunkIndex": number,
                "totalChunks": len(texts),
            }
            for number, text in enumerate(texts)
        ]


class Bench:
    """A client over a shelf."""

    def __init__(self, home: Path) -> None:
        self.shelf = Shelf()
        self.ledger = Ledger(home / "steps.jsonl", {})
        schemas = {
            "search-index": Draft202012Validator({"required": ["failed"]}),
            "search-query": Draft202012Validator({"required": ["results"]}),
        }
        anything = Draft202012Validator({})
        for tool in ("delete", "similar", "collection-info"):
            schemas[f"search-{tool}"] = anything
        stack = StackProcess(home, home / "data")
        self.client = Client(0, {"kadi": self.shelf}, schemas, stack, self.ledger)

    async def step(self, operation: str, **parameters: Any) -> list[str]:
        """Run a step; return what was seen in its violations."""
        before = len(self.ledger.violations)
        whole: Parameters = {"collection": COLLECTION, "transport": "kadi", **parameters}
        await self.client.run(Step("client-0", 0, operation, whole))
        return [f"{each['expected']} | {each['seen']}" for each in self.ledger.violations[before:]]

    async def index(self, **versions: int) -> list[str]:
        options: Parameters = {
            "blank": None,
            "link": None,
            "kinds": [],
            "maxTokens": 64,
            "force": False,
        }
        return await self.step("index", documents=versions, **options)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(clients, "HEALING_SECONDS", 0.0)
    monkeypatch.setattr(clients, "PATIENCE_SECONDS", 0.0)
    bench = Bench(tmp_path)
    yield bench
    bench.ledger.close()


async def test_a_correct_store_violates_nothing(bench: Bench) -> None:
    assert await bench.index(s0=4, s2=1) == []
    assert await bench.index(s0=2) == []
    assert await bench.step("delete", source="s2") == []
    assert await bench.step("verify") == []
    assert await bench.step("delete-collection") == []
    assert bench.ledger.operations["index"] == 2


async def test_a_lost_write_is_noticed(bench: Bench) -> None:
    bench.shelf.ignored.add("search-index")
    (seen,) = await bench.index(s0=1)
    assert seen == "{'s0': [1]} | {'s0': None}; still {'s0': None} after 0 s"


async def test_a_deletion_that_did_not_happen_is_noticed(bench: Bench) -> None:
    await bench.index(s0=1)
    bench.shelf.ignored.add("search-delete")
    assert "{'s0': [None]} | {'s0': 1}" in (await bench.step("delete", source="s0"))[0]


def without_the_last(hits: list[Hit]) -> list[Hit]:
    return hits[:-1]


def with_the_first_twice(hits: list[Hit]) -> list[Hit]:
    return [*hits, *hits[:1]]


def with_an_older_tail(hits: list[Hit]) -> list[Hit]:
    return [*hits[:-1], {**hits[-1], "content": "an older text"}] if hits else hits


def with_other_metadata(hits: list[Hit]) -> list[Hit]:
    return [{**hit, "metadata": {"version": 9}} for hit in hits]


def under_another_name(hits: list[Hit]) -> list[Hit]:
    return [{**hit, "source": SOURCES[3]} for hit in hits]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_the_last, "once and completely"),
        (with_the_first_twice, "once and completely"),
        (with_an_older_tail, "as one of its versions"),
        (with_other_metadata, "metadata of version 4"),
        (under_another_name, "in that source only"),
    ],
)
async def test_a_wrong_answer_is_noticed(
    bench: Bench, change: Callable[[list[Hit]], list[Hit]], expected: str
) -> None:
    assert await bench.index(s0=4) == []
    bench.shelf.change = change
    (seen,) = await bench.step("verify")
    assert expected in seen


async def test_a_call_that_fails_in_calm_is_noticed_and_not_under_a_fault(bench: Bench) -> None:
    def unavailable(tool: str) -> Outcome | None:
        if tool == "search-index":
            return Outcome(None, 0.0, "unavailable", "no worker", "wait")
        return None

    bench.shelf.fail = unavailable
    assert "to succeed while nothing is broken" in (await bench.index(s0=1))[0]
    bench.ledger.weather.begin("kill-worker-1")
    assert await bench.index(s0=2) == []
    assert bench.ledger.unknown == 1


@pytest.mark.parametrize(("code", "hint"), [("internal", "read the log"), ("busy", ""), ("", "x")])
async def test_a_failure_without_a_known_code_or_a_hint_is_noticed(
    bench: Bench, code: str, hint: str
) -> None:
    bench.shelf.fail = lambda tool: (
        Outcome(None, 0.0, code, "text", hint) if tool == "search-index" else None
    )
    bench.ledger.weather.begin("kill-worker-1")
    assert "a known code and a hint" in (await bench.index(s0=1))[0]


async def test_an_answer_that_breaks_its_schema_is_noticed(bench: Bench) -> None:
    bench.shelf.fail = lambda tool: Outcome({}, 0.0) if tool == "search-index" else None
    assert "by its schema" in (await bench.index(s0=1))[0]


async def test_a_hit_that_cannot_be_there_is_noticed(bench: Bench) -> None:
    await bench.index(s0=1)
    bench.shelf.change = lambda hits: [{**hit, "metadata": {"version": 3}} for hit in hits]
    options = {"mode": "hybrid", "limit": 5, "options": {}, "everywhere": False}
    (seen,) = await bench.step("query", source="s0", **options)
    assert "deleted or replaced" in seen
