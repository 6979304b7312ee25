from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.flows.test_tools import CODES
from tests.examples import examples

from ability_search.errors import InvalidInput
from ability_search.extensions.gateway.middleware import _ADDRESSES, RateLimit
from ability_search.extensions.gateway.network_state import network_tools
from ability_search.extensions.gateway.operations import openapi_document
from ability_search.extensions.gateway.problems import STATUSES, problem
from ability_search.extensions.gateway.request_bodies import fields_of, ingested
from ability_search.tools.table import all_tools
from kadi_client.messages import encode

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(), VALUES))
def test_json_objects_pass_through_unchanged(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    passed = json.loads(encode(fields_of(text.encode("utf-8", "replace"))))
    assert passed == json.loads(text.encode("utf-8", "replace"))


@given(st.binary())
def test_accepted_bodies_are_json_objects_in_utf_8(body: bytes) -> None:
    try:
        passed = fields_of(body)
    except InvalidInput:
        return
    assert isinstance(json.loads(encode(passed).decode()), dict)


def test_deeply_nested_body_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not valid JSON"):
        fields_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_rate_limit_admits_a_burst_then_the_rate() -> None:
    limit = RateLimit(rate=2.0, burst=3)
    assert [limit.wait("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.wait("b", 0.0) == 0.0
    assert limit.wait("a", 0.25) == 0.25
    assert limit.wait("a", 0.5) == 0.0
    assert limit.wait("a", 0.4) == 0.5, "a clock that goes back fills nothing"
    assert [limit.wait("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_rate_limit_remembers_a_bounded_number_of_addresses() -> None:
    limit = RateLimit(rate=0.001, burst=1)
    for number in range(_ADDRESSES + 1):
        assert limit.wait(str(number), 0.0) == 0.0
    assert limit.wait("1", 0.0) > 0
    assert limit.wait("0", 0.0) == 0.0, "the oldest was forgotten"


def test_every_error_code_has_an_http_status() -> None:
    assert STATUSES.keys() >= CODES
    unknown = problem({"code": "something-new", "error": "x"})
    assert unknown.status_code == 500
    assert json.loads(bytes(unknown.body))["detail"] == "x"


def test_ingested_text_without_a_source_uses_its_title() -> None:
    body = b'{"content": "\\ud800", "title": "t", "tag": "g", "metadata": {"n": 1e999}}'
    value = ingested(fields_of(body))
    assert value["documents"][0]["source"] == "t"
    assert value["documents"][0]["content"] == "\N{REPLACEMENT CHARACTER}"
    assert bytes(value["documents"][0]["metadata"]) == b'{"n": 1e999}'


def test_network_omits_what_the_broker_does_not_list() -> None:
    told = {"sessionId": "s", "agentId": "a", "displayName": "worker"}
    listed: list[dict[str, Any]] = [
        {"name": "two", "providers": [told, "odd", {}]},
        {"name": "one", "description": None},
    ]
    shown = network_tools(listed).model_dump(by_alias=True, exclude_none=True)
    assert shown["tools"] == [
        {"name": "one", "description": "", "providers": []},
        {
            "name": "two",
            "description": "",
            "providers": [{"agentId": "a", "name": "worker"}, {}, {}],
        },
    ]


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.mark.slow
def test_openapi_document_has_every_tool_with_valid_schemas_and_examples() -> None:
    described = json.loads(json.dumps(openapi_document(secured=True)))
    assert described["openapi"].startswith("3.1")
    assert {f"/tools/{row.name}" for row in all_tools()} <= described["paths"].keys()
    bodies = 0
    for path, _, operation in operations(described):
        assert operation["summary"]
        for response in operation["responses"].values():
            for content in response.get("content", {}).values():
                check(described, content["schema"])
        for content in operation.get("requestBody", {}).get("content", {}).values():
            bodies += 1
            check(described, content["schema"])
            for example in content["examples"].values():
                whole = {**content["schema"], "components": described["components"]}
                jsonschema.validate(example["value"], whole)
                assert example["value"] or path in (
                    "/tools/search-collections",
                    "/tools/memory-read",
                )
    others = ("/ingest", "/files", "/search", "/graph-search", "/ask")
    assert bodies == len(all_tools()) + len(others)
    identifiers = [operation["operationId"] for *_, operation in operations(described)]
    assert len(set(identifiers)) == len(identifiers)
    assert all(described["paths"][path]["get"]["security"] == [] for path in ("/health", "/ready"))


def check(described: dict[str, Any], schema: dict[str, Any]) -> None:
    """Every reference leads somewhere, and every schema is one."""
    jsonschema.Draft202012Validator.check_schema(schema)
    for reference in json.dumps([schema, described["components"]]).split('"$ref": "')[1:]:
        name = reference.partition('"')[0].rpartition("/")[2]
        assert name in described["components"]["schemas"]
