"""Calls are followed from part to part: by one id in every log, and by one trace."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.collector import collecting
from tests.ability_search.edge_network import client, opened
from tests.ability_search.flows.conftest import Network, document
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from ability_search.config.setting_fields import Url
from ability_search.extensions.cli import logs
from ability_search.extensions.cli.traces import CALL_ID, exporting
from ability_search.worker import open_worker

ID = "request-0123456789"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
QUERY = "sourdough"


@pytest.fixture
def lines() -> io.StringIO:
    """All that is logged, as an operator's collector gets it."""
    stream = io.StringIO()
    logs.configure("debug", "json", component="all")
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    return stream


def logged(stream: io.StringIO, logger: str = "") -> list[dict[str, Any]]:
    read = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in read if line["logger"].startswith(logger)]


def clear(stream: io.StringIO) -> None:
    stream.seek(0)
    stream.truncate()


@pytest.mark.engine
async def test_a_request_is_one_trace(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", QUERY)])
    with collecting() as collector, exporting(collector.url, "all"):
        async with opened(network.settings) as url, client(url) as http:
            answer = await http.post(
                "/search",
                json={"collection": "docs", "query": QUERY},
                headers={"traceparent": f"00-{TRACE}-{SPAN}-01", "X-Request-Id": ID},
            )
    assert answer.json()["results"]
    spans = [span for span in collector.spans if span.trace == TRACE]
    assert [span.name for span in spans if span.parent == SPAN] == ["POST"]
    assert {span.notes[CALL_ID] for span in spans} == {ID}
    paths = {" > ".join(collector.path_of(span)) for span in spans}
    query = "POST > search-query > search-query"
    assert {
        f"{query} > embed > create-embedding > create-embedding",
        f"{query} > candidates > database query > arcade-query > arcade-query",
        f"{query} > ranking",
        f"{query} > rows",
    } <= paths
    assert all(path.startswith("POST") for path in paths)
    assert not any(span.error for span in spans)
    assert QUERY not in repr(spans)


@pytest.mark.engine
async def test_all_that_is_logged_for_a_request_has_its_id(
    network: Network, lines: io.StringIO
) -> None:
    async with opened(network.settings) as url, client(url) as http:
        clear(lines)
        body = {"collection": "docs", "documents": [document("a", QUERY)]}
        answer = await http.post("/tools/search-index", json=body, headers={"X-Request-Id": ID})
        assert answer.status_code == 200
        assert answer.headers["X-Request-Id"] == ID
    of_the_call = [line for line in logged(lines) if line.get("call") == ID]
    assert {line["message"].partition(":")[0] for line in of_the_call} >= {
        "search-index",
        "create-embedding",
        "arcade-command",
    }
    assert {line["logger"] for line in of_the_call} >= {
        "ability_search.store.registry",  # the worker's services
        "ability_search.providers.model_calls",  # where it calls others
        "kadi_client.provider",  # whoever is called
        "kadi_localnet.broker.calls",
    }
    told = [line for line in logged(lines, "kadi_client.provider") if line["level"] == "info"]
    assert [line["message"].partition(" in ")[0] for line in told] == ["search-index: ok"] * 2
    assert QUERY not in lines.getvalue()


HOSTILE = ["x" * 65, "two\nlines", "", "ä" * 10, 7, None, ["12345678"], {"callId": "12345678"}]


async def test_ids_that_cannot_be_used_are_replaced(network: Network, lines: io.StringIO) -> None:
    for id_ in HOSTILE:
        clear(lines)
        hints = {"callId": id_, "traceparent": id_}
        await network.call("search-collections", _kadi=hints)
        (line,) = [
            each for each in logged(lines, "kadi_client.provider") if each["level"] == "info"
        ]
        (broker,) = [
            each
            for each in logged(lines, "kadi_localnet.broker.calls")
            if "search-" in each["message"]
        ]
        assert line["call"] == broker["call"] != id_
        assert f"call {line['call']} of search-collections" in broker["message"]


async def test_a_broker_may_drop_what_is_said_besides(
    network: Network, lines: io.StringIO, tmp_path: Path
) -> None:
    async with _stripping(network.url) as url:
        broker = network.settings.broker.model_copy(update={"url": Url(url)})
        settings = replace(network.settings, brokers=(broker,))
        await network.worker.serve([])
        async with open_worker(settings, base=tmp_path):
            answer = await network.call("search-collections", _kadi={"callId": ID})
    assert answer["collections"] == []
    (line,) = [each for each in logged(lines, "kadi_client.provider") if each["level"] == "info"]
    assert line["call"] != ID
    (begun,) = [each for each in logged(lines) if f"call {line['call']} of" in each["message"]]
    assert begun["call"] == ID


@asynccontextmanager
async def _stripping(broker: str) -> AsyncIterator[str]:
    """A broker that passes neither ``_kadi`` nor ``_meta`` on."""

    async def relay(peer: ServerConnection) -> None:
        async with connect(broker) as inner:

            async def pump(source: Any, sink: Any) -> None:
                with suppress(ConnectionClosed):
                    async for frame in source:
                        await sink.send(_stripped(frame))
                await sink.close()

            await asyncio.gather(pump(peer, inner), pump(inner, peer))

    async with serve(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/kadi"


def _stripped(frame: str | bytes) -> str:
    message = json.loads(frame)
    params = message.get("params")
    if isinstance(params, dict) and isinstance(params.get("toolInput"), dict):
        params["toolInput"].pop("_kadi", None)
        params.pop("_meta", None)
    return json.dumps(message)
