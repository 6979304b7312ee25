"""Clients that would fill the gateway: unfinished bodies, streams of other sites, probes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.ability_search.edge_network import SECONDS, Stage, client, opened, settings_for, soon

from ability_search.extensions.gateway import middleware

LISTED: dict[str, Any] = {"collections": []}
UNFINISHED = (
    b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)


async def posting(url: str, stack: AsyncExitStack) -> asyncio.StreamReader:
    """Open a connection with a request whose body does not arrive; return its responses."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    stack.callback(writer.close)
    writer.write(UNFINISHED)
    await writer.drain()
    return reader


async def status(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SECONDS):
        return (await reader.readline()).split()[1]


async def until_arriving(http: httpx.AsyncClient) -> None:
    """Wait until all places for arriving bodies are taken."""
    async with asyncio.timeout(SECONDS):
        while (await http.post("/search", json={"query": "x"})).status_code != 503:
            pass


async def test_unfinished_bodies_take_no_place_and_the_slowest_is_displaced(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.answers["search-collections"] = lambda _: LISTED
    stage.answers["search-query"] = lambda _: {"results": []}
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_CONCURRENCY="2")
    async with opened(settings) as url, client(url) as http, AsyncExitStack() as stack:
        waiting = [await posting(url, stack) for _ in range(2)]
        await until_arriving(http)
        assert (await http.get("/collections")).json() == LISTED
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 204
        busy = await http.post("/search", json={"query": "x"})
        assert (busy.status_code, busy.json()["code"]) == (503, "busy")
        monkeypatch.setattr(middleware, "YOUNG_SECONDS", 0.0)
        assert (await http.post("/search", json={"query": "x"})).json() == {"results": []}
        ended = [asyncio.create_task(status(each)) for each in waiting]
        done, pending = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"504"]
        for task in pending:
            task.cancel()


async def test_a_body_that_does_not_arrive_ends(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.2)
    async with opened(settings_for(stage.url, tmp_path)) as url, AsyncExitStack() as stack:
        assert await status(await posting(url, stack)) == b"504"


async def test_probes_are_answered_while_every_place_is_taken(stage: Stage, tmp_path: Path) -> None:
    stage.hold = asyncio.Event()
    stage.answers["search-collections"] = lambda _: LISTED
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_CONCURRENCY="1")
    async with opened(settings) as url, client(url) as http:
        call = asyncio.create_task(http.get("/collections"))
        await soon(stage.begun)
        assert (await http.get("/collections")).json()["code"] == "busy"
        answers = await asyncio.gather(*(http.get("/health") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert (await http.get("/ready")).status_code == 204
        stage.hold.set()
        assert (await call).json() == LISTED


async def test_pages_of_other_sites_open_no_stream_and_use_up_no_rate(
    stage: Stage, tmp_path: Path
) -> None:
    limits = {"SEARCH_GATEWAY_STREAMS": "1", "SEARCH_GATEWAY_BURST": "2"}
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_RATE="0.001", **limits)
    async with opened(settings) as url, client(url) as http:
        for site in ("cross-site", "same-site") * 3:
            # A browser sends no Origin with <img src=".../events"> or <iframe>.
            refused = await http.get("/events", headers={"sec-fetch-site": site})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden_origin")
        assert (await http.get("/health", headers={"sec-fetch-site": "cross-site"})).is_error
        async with http.stream("GET", "/events", headers={"sec-fetch-site": "same-origin"}) as own:
            assert own.status_code == 200
        link = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
        assert (await http.get("/", headers=link)).status_code == 200
