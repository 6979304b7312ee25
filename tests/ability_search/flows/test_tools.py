"""The eight tools as a caller meets them: names, schemas, errors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, document, down

from kadi_client import Connection, NotConnected, RemoteError

EIGHT = {
    "search-index",
    "search-index-file",
    "search-query",
    "search-similar",
    "search-reindex",
    "search-delete",
    "search-collections",
    "search-collection-info",
}
CODES = {
    "invalid_input",
    "not_found",
    "model_mismatch",
    "dimension_mismatch",
    "embedding_unavailable",
    "database_unavailable",
    "too_large",
    "busy",
    "forbidden_path",
    "timeout",
    "cancelled",
    "internal",
}
SELF_EXPLANATORY = {"boolean", "object"}


async def registered(network: Network) -> dict[str, Mapping[str, Any]]:
    tools = await network.client.list_tools()
    return {tool["name"]: tool for tool in tools if tool["name"].startswith("search-")}


def properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every property of a schema and of its definitions."""
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


async def test_exactly_the_eight_are_registered(network: Network) -> None:
    assert set(await registered(network)) == EIGHT


async def test_the_schemas_are_valid_and_say_what_is_meant(network: Network) -> None:
    for name, tool in (await registered(network)).items():
        assert len(tool["description"]) > 20
        given, answered = tool["inputSchema"], tool["outputSchema"]
        jsonschema.Draft202012Validator.check_schema(given)
        jsonschema.Draft202012Validator.check_schema(answered)
        assert given["additionalProperties"] is False
        for field, schema in properties(given):
            assert schema.get("description"), f"{name}.{field}"
            assert re.fullmatch(r"[a-z][A-Za-z]*", field)
            for example in schema.get("examples", ()):
                whole = {**schema, "$defs": given.get("$defs", {})}
                jsonschema.Draft202012Validator(whole).validate(example)
        for field, _ in properties(answered):
            assert re.fullmatch(r"[a-z][A-Za-z]*", field)
        for field in given.get("required", ()):
            assert given["properties"][field].get("examples") or "$ref" in json.dumps(
                given["properties"][field]
            ), f"{name}.{field} has no example"


async def test_every_answer_fits_its_schema(network: Network, tmp_path: Path) -> None:
    """``call`` checks each of them."""
    (tmp_path / "notes.md").write_text("# Notes\n\nSome words.\n\n## More\n\nMore words.\n")
    documents = [document("a", "some words", metadata={"lang": "en"}), document("b", " ")]
    assert set(network.outputs) > EIGHT
    indexed = await network.call("search-index", collection="docs", documents=documents)
    assert [failed["source"] for failed in indexed["failed"]] == ["b"]
    await network.call("search-index-file", collection="docs", path="notes.md")
    for mode in ("semantic", "keyword", "hybrid"):
        await network.call(
            "search-query",
            collection="docs",
            query="some words",
            mode=mode,
            highlights=True,
            explain=True,
            hypotheticalAnswer="words",
        )
    await network.call("search-query", collection=["docs", "missing"], query="some words")
    await network.call("search-similar", collection="docs", chunkId="docs:a:0")
    await network.call("search-collections")
    await network.call("search-collection-info", collection="docs", limit=1)
    await network.call("search-reindex", collection="docs")
    await network.call("search-delete", collection="docs", source="a")
    await network.call("search-reindex", collection="docs", clear=True)


async def test_results_are_flat_and_in_camel_case(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "# B\n\nwords")])
    answer = await network.call("search-query", collection="docs", query="words", explain=True)
    (hit,) = answer["results"]
    assert {"chunkId", "source", "title", "content", "score", "metadata", "chunkIndex"} <= set(hit)
    for key in (*answer, *hit):
        assert re.fullmatch(r"[a-z][A-Za-z]*", key)


@pytest.mark.parametrize("tool", sorted(EIGHT))
async def test_unknown_fields_are_refused_by_name(network: Network, tool: str) -> None:
    answer = await network.refused(tool, colection="docs")
    assert answer["code"] == "invalid_input"
    assert answer["tool"] == tool
    assert "colection" in answer["error"]
    assert answer["retryable"] is False


async def test_routing_hints_are_no_fields(network: Network) -> None:
    hints = {"_kadi": {"networks": ["global"]}}
    assert await network.call("search-collections", **hints) == {"collections": []}


@pytest.mark.parametrize("tool", sorted(EIGHT - {"search-collections"}))
async def test_missing_fields_are_named(network: Network, tool: str) -> None:
    answer = await network.refused(tool)
    assert answer["code"] == "invalid_input"
    for field in (await registered(network))[tool]["inputSchema"].get("required", ("input",)):
        assert f"{field}:" in answer["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", 0),
        ("limit", "10"),
        ("limit", True),
        ("offset", -1),
        ("mode", "fuzzy"),
        ("minScore", 1.5),
        ("minScore", "high"),
        ("fusion", {"method": "sum"}),
        ("fusion", {"method": "rrf", "weights": {"graph": 1}}),
        ("fusion", {"method": "rrf", "weights": {"keyword": -1}}),
        ("sources", "guide/**"),
        ("filter", []),
        ("query", ""),
        ("query", " \t\n\u3000"),
        ("query", 7),
        ("hypotheticalAnswer", "  "),
        ("model", ""),
    ],
)
async def test_wrong_values_name_their_field(network: Network, field: str, value: Any) -> None:
    given = {"collection": "docs", "query": "words", field: value}
    answer = await network.refused("search-query", **given)
    assert answer["code"] == "invalid_input"
    assert field in answer["error"]
    assert "hint" in answer


async def test_a_blank_query_is_told_so(network: Network) -> None:
    answer = await network.refused("search-query", collection="docs", query="  ")
    assert "query" in answer["error"]
    assert "blank" in answer["error"]


async def test_values_are_not_repeated(network: Network) -> None:
    secret = "hunter2-" + "x" * 100_000
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search-query", {"collection": secret, "query": "w"}),
        ("search-query", {"collection": "docs", "query": "w", "mode": secret}),
        ("search-query", {"collection": "docs", "query": "w", "cursor": secret}),
        (
            "search-query",
            {"collection": "docs", "query": "w", "filter": {"source": {"$eq": [secret, []]}}},
        ),
        ("search-query", {"collection": "docs", "query": "w", "sources": [secret]}),
        ("search-similar", {"collection": "docs", "chunkId": secret}),
        ("search-delete", {"collection": "docs", "source": secret}),
        ("search-delete", {"collection": secret}),
        ("search-index", {"collection": "docs", "documents": [secret]}),
        ("search-index", {"collection": "docs", "documents": [document(secret, "words")]}),
        ("search-index-file", {"collection": "docs", "path": "a", "format": secret}),
        ("search-collection-info", {"collection": "docs", "cursor": secret}),
    ]
    for tool, given in calls:
        answer = await network.refused(tool, **given)
        assert "hunter2" not in json.dumps(answer), tool
        assert answer["code"] in ("invalid_input", "too_large")


async def test_an_error_is_no_longer_than_it_need_be(network: Network) -> None:
    answer = await network.refused("search-query", **{f"{n}" * 200: n for n in range(500)})
    assert answer["code"] == "invalid_input"
    assert len(answer["error"]) < 2100


def shaped(answer: Mapping[str, Any], code: str, tool: str, *, retryable: bool) -> None:
    """An error is as documented."""
    assert answer["success"] is False
    assert answer["code"] == code
    assert code in CODES
    assert answer["tool"] == tool
    assert answer["retryable"] is retryable
    assert answer["error"]
    assert answer["hint"]
    assert set(answer) <= {
        *("success", "error", "code", "tool", "collection", "hint", "retryable", "retryAfterMs"),
    }


async def test_not_found(network: Network) -> None:
    answer = await network.refused("search-query", collection="docs", query="w")
    shaped(answer, "not_found", "search-query", retryable=False)
    assert answer["collection"] == "docs"


async def test_forbidden_path(network: Network) -> None:
    answer = await network.refused("search-index-file", collection="docs", path="/etc/passwd")
    shaped(answer, "forbidden_path", "search-index-file", retryable=False)


async def test_model_mismatch(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    answer = await network.refused("search-query", collection="docs", query="w", model="another")
    shaped(answer, "model_mismatch", "search-query", retryable=False)
    assert MODEL in answer["hint"]


async def test_dimension_mismatch(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    network.model.dimensions = 32
    answer = await network.refused("search-query", collection="docs", query="w", mode="semantic")
    shaped(answer, "dimension_mismatch", "search-query", retryable=False)


async def test_embedding_unavailable(start: Start) -> None:
    async with start(SEARCH_EMBEDDING_ATTEMPTS="1") as network:
        await network.call("search-index", collection="docs", documents=[document("a", "words")])
        network.model.failure = down
        answer = await network.refused(
            "search-query", collection="docs", query="w", mode="semantic"
        )
        shaped(answer, "embedding_unavailable", "search-query", retryable=True)


async def test_timeout(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    network.model.gate = asyncio.Event()
    call = {"collection": "docs", "query": "w", "mode": "semantic"}
    answer = await network.client.invoke("search-query", call, timeout=4.0, check=False)
    shaped(answer, "timeout", "search-query", retryable=True)
    network.model.gate.set()


async def test_a_timeout_of_a_job_is_announced_as_one(network: Network) -> None:
    network.model.gate = asyncio.Event()
    async with network.client.subscribe("search.index.failed") as failures:
        call = {"collection": "docs", "documents": [document("a", "words")], "jobId": "j1"}
        answer = await network.client.invoke("search-index", call, timeout=4.0, check=False)
        shaped(answer, "timeout", "search-index", retryable=True)
        async with asyncio.timeout(10):
            event = await anext(failures)
    assert event.data["jobId"] == "j1"
    assert event.data["code"] == "timeout"
    network.model.gate.set()


async def test_cancelled(network: Network) -> None:
    """Nobody waits for the answer of a cancelled call; the others hear of it."""
    network.model.gate = asyncio.Event()
    call = {"collection": "docs", "documents": [document("a", "words")], "jobId": "j2"}
    async with network.client.subscribe("search.index.failed") as failures, asyncio.timeout(20):
        async with Connection(network.url, name="leaves") as caller:
            running = asyncio.create_task(caller.invoke("search-index", call))
            while not network.model.requests:
                await network.client.list_tools()
        with pytest.raises(NotConnected):
            await running
        event = await anext(failures)
    assert (event.data["code"], event.data["jobId"]) == ("cancelled", "j2")
    network.model.gate.set()


@pytest.mark.engine
async def test_internal_errors_have_an_incident_and_leak_nothing(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])

    def nonsense(tool: str, _tool_input: Mapping[str, Any]) -> Any:
        if tool != "arcade-query":
            return None
        return {"success": True, "result": [{"SELECT": "FROM /secret/path sk-key"}]}

    network.faults.append(nonsense)
    answer = await network.refused("search-collections", _kadi={"callId": "call-of-a-caller"})
    shaped(answer, "internal", "search-collections", retryable=False)
    incident = re.search(r"incident ([0-9a-f]{12}) of call call-of-a-caller$", answer["error"])
    assert incident
    assert incident[1] in caplog.text
    for leak in ("SELECT", "secret", "sk-key", "Traceback", "KeyError", ".py"):
        assert leak not in json.dumps(answer)


@pytest.mark.engine
async def test_refusals_of_the_database_are_not_repeated(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])

    def refuse(tool: str, _tool_input: Mapping[str, Any]) -> Any:
        if tool != "arcade-query":
            return None
        return {"success": False, "error": "cannot run SELECT FROM `x` in /var/lib/secret"}

    network.faults.append(refuse)
    answer = await network.refused("search-query", collection="docs", query="w", mode="keyword")
    shaped(answer, "database_unavailable", "search-query", retryable=True)
    for leak in ("SELECT", "secret", "/var"):
        assert leak not in json.dumps(answer)


async def test_a_call_of_an_unknown_tool_is_no_answer(network: Network) -> None:
    with pytest.raises(RemoteError):
        await network.client.invoke("search-everything", {}, timeout=5)
