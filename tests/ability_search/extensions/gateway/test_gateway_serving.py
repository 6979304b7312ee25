"""The gateway between its callers and a broker, on tools that the test plays."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ability_search.edge_network import (
    SECONDS,
    TOKEN,
    Stage,
    client,
    opened,
    settings_for,
    soon,
)

from ability_search.errors import ConfigurationError
from ability_search.extensions.gateway.gateway_command import open_gateway
from ability_search.extensions.mcp import mcp_command as assistants
from ability_search.tools.table import TOOLS
from kadi_client import Connection, NotConnected, Raw, Tool
from kadi_localnet.broker import serve_broker

LISTED: dict[str, Any] = {"collections": []}


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


async def test_inputs_and_results_pass_through_unchanged(stage: Stage, tmp_path: Path) -> None:
    stage.answers["search-query"] = lambda _: Raw(b'{"results":[],"big":12345678901234567890.5}')
    async with opened(settings_for(stage.url, tmp_path)) as url, client(url) as http:
        body = '{"query": "\\ud83d caf\\u00e9 \U0001f600", "x": {"deep": [1, null]}}'
        headers = {"content-type": "application/json; charset=utf-8"}
        answer = await http.post("/tools/search-query", content=body.encode(), headers=headers)
        assert answer.content == b'{"results":[],"big":12345678901234567890.5}'
        query = "\N{REPLACEMENT CHARACTER} caf\u00e9 \U0001f600"
        assert stage.asked == [("search-query", {"query": query, "x": {"deep": [1, None]}})]


async def test_malformed_requests_are_refused_without_a_call(stage: Stage, tmp_path: Path) -> None:
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_REQUEST_BYTES="2KiB")
    async with opened(settings) as url, client(url) as http:
        kind = {"content-type": "application/json"}
        path = "/tools/search-query"
        many = {"query": "x" * 3000}
        assert code(await http.post(path, content=b"{", headers=kind)) == (400, "invalid_input")
        assert code(await http.post(path, content=b"[]", headers=kind)) == (400, "invalid_input")
        assert code(await http.post(path, content=b'{"a":"\xff"}', headers=kind))[0] == 400
        assert code(await http.post(path, content=b"{}")) == (415, "unsupported_media_type")
        assert code(await http.post("/ingest", content=b"{}"))[0] == 415
        assert code(await http.post(path, json=many)) == (413, "too_large")
        assert code(await http.post("/tools/arcade-command", json={})) == (404, "not_found")
        assert (
            code(await http.post("/search", json={"query": "q", "tag": "a", "collection": "b"}))[0]
            == 400
        )
        assert code(await http.get("/nothing")) == (404, "not_found")
        wrong = await http.get(path)
        assert code(wrong) == (405, "method_not_allowed")
        assert wrong.headers["allow"] == "POST"
        assert stage.asked == []


async def test_bodies_of_too_many_values_are_refused_without_a_call(
    stage: Stage, tmp_path: Path
) -> None:
    settings = settings_for(stage.url, tmp_path, SEARCH_MAX_BATCH_DOCUMENTS="1")
    async with opened(settings) as url, client(url) as http:
        for path in ("/tools/search-index", "/ingest", "/files", "/tools/memory-write"):
            answer = await http.post(path, json={"documents": [[]] * 10_100})
            assert code(answer) == (413, "too_large")
        assert stage.asked == []


@pytest.mark.slow
async def test_lost_broker_is_reported_and_used_again_when_it_returns(
    stage: Stage, tmp_path: Path
) -> None:
    stage.answers["search-collections"] = lambda _: LISTED
    async with opened(settings_for(stage.url, tmp_path)) as url, client(url) as http:
        assert (await http.get("/collections")).json() == LISTED
        assert (await http.get("/ready")).status_code == 204
        well = await http.get("/health")
        assert (well.status_code, well.json()["status"]) == (200, "up")
        assert well.json()["parts"]["worker"] == {"state": "up", "providers": 1}

        await stage.close()
        away = await http.get("/collections")
        assert code(away) == (503, "unavailable")
        assert away.json()["retryable"]
        assert away.headers["retry-after"] == "1"
        for path in ("/collections", "/ready", "/events", "/network"):
            detail = (await http.get(path)).json()["detail"]
            assert f"cannot reach the broker at {stage.url}" in detail, path
        ill = await http.get("/health")
        assert (ill.status_code, ill.json()) == (
            503,
            {"status": "down", "parts": {"broker": {"state": "down"}}},
        )
        assert code(await http.get("/ready")) == (503, "unavailable")
        assert code(await http.get("/events")) == (503, "unavailable")
        assert code(await http.get("/network")) == (503, "unavailable")

        await stage.open()
        async with asyncio.timeout(SECONDS):
            while (await http.get("/ready")).status_code != 204:
                pass
        assert (await http.get("/collections")).json() == LISTED


async def test_gateway_without_a_worker_is_neither_ready_nor_healthy(
    tmp_path: Path, stage: Stage
) -> None:
    await stage.close()
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        opened(settings_for(broker.url, tmp_path)) as url,
        client(url) as http,
    ):
        assert code(await http.get("/ready")) == (503, "unavailable")
        away = await http.get("/collections")
        assert code(away) == (503, "unavailable")
        assert away.json()["detail"] == (
            "search-collections did not answer: no agent on the networks of this client offers it:"
            " no provider for tool 'search-collections' on the networks searched: global"
        )
        assert "ability-search worker" in away.json()["hint"]
        assert "search-collections" in (await http.get("/ready")).json()["detail"]
        parts = (await http.get("/health")).json()["parts"]
        assert parts["broker"] == {"state": "up"}
        assert parts["worker"]["state"] == "down"
        assert "search-query" in parts["worker"]["missing"]


async def test_tools_that_no_worker_offers_are_answered_with_the_remedy(tmp_path: Path) -> None:
    async def answer(_given: dict[str, Any], _call: Any) -> dict[str, Any]:
        return LISTED

    eight = [Tool(row.name, row.title, {"type": "object"}, answer) for row in TOOLS]
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, role="ability", tools=eight),
        opened(settings_for(broker.url, tmp_path)) as url,
        client(url) as http,
    ):
        described = (await http.get("/openapi.json")).json()["paths"]
        for path, ask, family in (
            ("/tools/memory-read", http.post("/tools/memory-read", json={}), "memory"),
            ("/collections/{name}/graph", http.get("/collections/a/graph"), "notes"),
        ):
            answered = await ask
            assert code(answered) == (501, "not_offered")
            assert not answered.json()["retryable"]
            assert f"set SEARCH_OFFER={family} for it" in answered.json()["hint"]
            assert "501" in next(iter(described[path].values()))["responses"]
        assert "501" not in described["/tools/search-query"]["post"]["responses"]
        assert (await http.get("/collections")).json() == LISTED
        assert (await http.get("/ready")).status_code == 204

    offering = settings_for(broker.url, tmp_path, SEARCH_OFFER="memory,mail")
    with pytest.raises(ConfigurationError, match="no extension that is loaded has tools 'mail'"):
        async with opened(offering):
            pass


async def test_disconnecting_cancels_the_call(stage: Stage, tmp_path: Path) -> None:
    stage.hold = asyncio.Event()
    async with opened(settings_for(stage.url, tmp_path)) as url, client(url) as http:
        call = asyncio.create_task(http.post("/tools/search-query", json={"query": "x"}))
        await soon(stage.begun)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await soon(stage.dropped)


async def test_bearer_token_is_required_if_one_is_set(stage: Stage, tmp_path: Path) -> None:
    stage.answers["search-collections"] = lambda _: LISTED
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_TOKEN=TOKEN)
    async with opened(settings) as url, client(url) as http:
        for wrong in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "é"):
            headers = {b"authorization": wrong.encode("latin-1")} if wrong else {}
            refused = await http.get("/collections", headers=headers)
            assert code(refused) == (401, "unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in refused.text
        for given in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
            right = await http.get("/collections", headers={"authorization": given})
            assert right.json() == LISTED
        assert code(await http.post("/mcp", json={})) == (401, "unauthorized")
        assert (await http.get("/metrics")).status_code == 401
        described = (await http.get("/openapi.json")).json()
        assert described["security"] == [{"bearer": []}]
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 204
        assert TOKEN not in repr(settings)


async def test_start_failures_are_explained(stage: Stage, tmp_path: Path) -> None:
    settings = settings_for(stage.url, tmp_path)
    with pytest.raises(ConfigurationError, match="set a token") as refused:
        async with opened(settings, host="0.0.0.0"):
            pass
    assert "SEARCH_GATEWAY_TOKEN" in refused.value.hint
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_TOKEN=TOKEN)
    async with opened(settings, host="0.0.0.0") as url:
        port = httpx.URL(url).port
        async with client(f"http://127.0.0.1:{port}") as http:
            headers = {"host": "search.example", "authorization": f"Bearer {TOKEN}"}
            assert (await http.get("/ready", headers=headers)).status_code == 204
        with pytest.raises(ConfigurationError, match="cannot listen"):
            async with open_gateway(settings, host="127.0.0.1", port=port or 0, wait=SECONDS):
                pass
    await stage.close()
    with pytest.raises(NotConnected, match="cannot reach the broker"):
        async with open_gateway(settings, host="127.0.0.1", port=0, wait=0):
            pass


async def test_other_origins_and_host_names_are_refused(stage: Stage, tmp_path: Path) -> None:
    stage.answers["search-collections"] = lambda _: LISTED
    own = "https://own.example"
    environ = {"SEARCH_GATEWAY_ORIGINS": own, "SEARCH_GATEWAY_HOSTS": "search.test"}
    async with opened(settings_for(stage.url, tmp_path)) as url, client(url) as http:
        for name in ("attacker.example", f"attacker.example:{httpx.URL(url).port}", ""):
            assert code(await http.get("/collections", headers={"host": name})) == (
                421,
                "misdirected",
            )
        assert (await http.get("/collections", headers={"host": "LOCALHOST:1"})).is_success
        for origin in (own, "null", "http://localhost:1", "http://[", ""):
            refused = await http.get("/collections", headers={"origin": origin})
            assert code(refused) == (403, "forbidden_origin")
            assert "access-control-allow-origin" not in refused.headers
        assert (await http.get("/collections", headers={"origin": url})).is_success
    async with opened(settings_for(stage.url, tmp_path, **environ)) as url, client(url) as http:
        allowed = await http.get("/collections", headers={"origin": own})
        assert allowed.headers["access-control-allow-origin"] == own
        asking = {"origin": own, "access-control-request-method": "POST"}
        preflight = await http.options("/search", headers=asking)
        assert preflight.headers["access-control-allow-origin"] == own
        assert code(await http.get("/collections", headers={"origin": "https://x.example"})) == (
            403,
            "forbidden_origin",
        )
        assert (await http.get("/collections", headers={"host": "search.test"})).is_success


async def test_rate_and_concurrency_limits_are_enforced_and_counted(
    stage: Stage, tmp_path: Path
) -> None:
    stage.hold = asyncio.Event()
    stage.answers["search-collections"] = lambda _: LISTED
    narrow = {"SEARCH_GATEWAY_CONCURRENCY": "1", "SEARCH_GATEWAY_STREAMS": "1"}
    async with opened(settings_for(stage.url, tmp_path, **narrow)) as url, client(url) as http:
        first = asyncio.create_task(http.get("/collections"))
        await soon(stage.begun)
        busy = await http.get("/collections")
        assert code(busy) == (503, "busy")
        assert busy.headers["retry-after"] == "1"
        async with http.stream("GET", "/events") as events:
            assert events.status_code == 200
            assert code(await http.get("/events")) == (503, "busy")
            stage.hold.set()
            assert (await first).json() == LISTED
            numbers = (await http.get("/metrics")).text
    name = "ability_search_gateway"
    assert f'{name}_tool_calls_total{{code="ok",tool="search-collections"}} 1.0' in numbers
    assert f'{name}_tool_call_seconds_count{{tool="search-collections"}} 1.0' in numbers
    assert f'{name}_responses_total{{status="503"}} 2.0' in numbers
    assert f"{name}_requests_in_flight 1.0" in numbers
    assert f"{name}_streams_open 1.0" in numbers

    slow = {"SEARCH_GATEWAY_RATE": "0.001", "SEARCH_GATEWAY_BURST": "1"}
    async with opened(settings_for(stage.url, tmp_path, **slow)) as url, client(url) as http:
        assert (await http.get("/collections")).is_success
        limited = await http.get("/collections")
        assert code(limited) == (429, "rate_limited")
        assert 0 < int(limited.headers["retry-after"]) <= 1000
        for probe in ("/health", "/ready") * 2:
            assert (await http.get(probe)).is_success


async def test_event_stream_of_a_job_ends_with_the_job(stage: Stage, tmp_path: Path) -> None:
    progress = {"collection": "notes", "done": 1, "total": 2, "stage": "embed"}
    ended = ("search.index.completed", {"collection": "notes"})
    stage.events = [("search.index.progress", progress), ended]
    stage.answers["search-index"] = lambda _: {"indexed": True}
    async with opened(settings_for(stage.url, tmp_path)) as url, client(url) as http:
        async with http.stream("GET", "/events", params={"jobId": "j2"}) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            lines = events.aiter_lines()
            assert await anext(lines) == ": connected"
            for job in ("j1", "j2"):
                await http.post("/tools/search-index", json={"jobId": job})
            rest = [line async for line in lines if line]
        assert rest[0::2] == ["event: progress", "event: completed"]
        data = [json.loads(line.removeprefix("data: ")) for line in rest[1::2]]
        assert data == [{**progress, "jobId": "j2"}, {"collection": "notes", "jobId": "j2"}]


async def test_shutdown_ends_streams_and_finishes_calls(stage: Stage, tmp_path: Path) -> None:
    stage.hold = asyncio.Event()
    stage.answers["search-collections"] = lambda _: LISTED
    async with client("http://unused") as http:
        async with opened(settings_for(stage.url, tmp_path)) as url:
            stream = await http.send(http.build_request("GET", f"{url}/events"), stream=True)
            call = asyncio.create_task(http.get(f"{url}/collections"))
            await soon(stage.begun)
            asyncio.get_running_loop().call_later(0.2, stage.hold.set)
        assert (await call).json() == LISTED
        assert await stream.aread() == b": connected\n\n"
        with pytest.raises(httpx.ConnectError):
            await http.get(f"{url}/ready")


async def test_missing_extra_is_reported_with_its_install_command(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(stage.url, tmp_path)
    monkeypatch.setitem(sys.modules, "mcp", None)
    async with opened(settings) as url, client(url) as http:
        answer = await http.post("/mcp", json={})
        assert code(answer) == (501, "not_installed")
        assert "pip install 'ability-search[mcp]'" in answer.json()["hint"]
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(ConfigurationError, match="the extra 'gateway' is not installed") as refused:
        async with opened(settings):
            pass
    assert "pip install 'ability-search[gateway]'" in refused.value.hint
    with pytest.raises(ConfigurationError, match="the extra 'mcp' is not installed: mcp missing"):
        assistants.mcp()


async def unused(_input: Any, _call: Any) -> None:
    raise AssertionError("not called")


async def test_malformed_events_and_those_of_other_agents_are_skipped(
    stage: Stage, tmp_path: Path
) -> None:
    own = {"jobId": "j", "text": "a\n\nevent: b"}
    published: list[Any] = [None, [], "text", {"jobId": ["j"]}, own]
    async with (
        opened(settings_for(stage.url, tmp_path)) as url,
        client(url) as http,
        Connection(stage.url) as stranger,
        Connection(stage.url, tools=[Tool("search-index", "", {}, unused)]) as worker,
        http.stream("GET", "/events", params={"jobId": "j"}) as events,
    ):
        lines = events.aiter_lines()
        assert await anext(lines) == ": connected"
        await stranger.publish("search.index.failed", {"jobId": "j", "error": "forged"})
        for data in published:
            await worker.publish("search.index.failed", data)
        rest = [line async for line in lines if line]
        assert rest == ["event: failed", 'data: {"jobId":"j","text":"a\\n\\nevent: b"}']
