"""The HTTP server and its checks, with raw sockets where a client misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import http_server
from ability_search.extensions.cli.http_access import (
    BrowserPolicy,
    ForbiddenOrigin,
    Receive,
    Scope,
    Send,
    send_text,
)
from ability_search.extensions.cli.http_server import serve_http
from ability_search.extensions.cli.prometheus_meter import serve_metrics

SECONDS = 20.0
LOCAL = "127.0.0.1"
LONG = bytes(16 * 1024 * 1024)
"""More than the buffers of a connection hold."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def application(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send_text(send, b"x", "text/plain")


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    async with serve_http(application, LOCAL, 0, token=None, prefix="test") as url:
        yield url


async def connected(url: str, sent: bytes) -> Stream:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def ended(stream: Stream) -> bytes:
    """The rest of what a server sends until it ends the connection."""
    reader, writer = stream
    received = b""
    async with asyncio.timeout(SECONDS):
        try:
            while part := await reader.read(65536):
                received += part
        except ConnectionResetError:
            pass
    writer.close()
    return received


async def test_an_address_of_other_machines_needs_a_token() -> None:
    with pytest.raises(ConfigurationError, match="set a token") as refused:
        async with serve_http(application, "0.0.0.0", 0, token=None, prefix="model_http"):
            pass
    assert "SEARCH_MODEL_HTTP_TOKEN" in refused.value.hint


async def test_a_port_in_use_is_a_configuration_error() -> None:
    async with served() as url:
        port = urlsplit(url).port or 0
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}") as taken:
            async with serve_http(application, LOCAL, port, token=None, prefix="gateway"):
                pass
    assert "SEARCH_GATEWAY_PORT" in taken.value.hint


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_headers_that_do_not_arrive_end_the_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.2)
    async with served() as url:
        assert await ended(await connected(url, sent)) == b""


async def test_dripping_headers_do_not_extend_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.2)
    async with served() as url:
        reader, writer = await connected(url, b"GET / HTTP/1.1\r\nHost: x\r\n")
        async with asyncio.timeout(SECONDS):
            while True:
                writer.write(b"X-Slow: 1\r\n")
                try:
                    assert await asyncio.wait_for(reader.read(), timeout=0.02) == b""
                    break
                except TimeoutError:
                    continue
        writer.close()


async def test_a_response_that_is_not_read_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "UNREAD_SECONDS", 0.2)
    gone = asyncio.Event()

    async def long(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": LONG, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with serve_http(long, LOCAL, 0, token=None, prefix="test") as url:
        stream = await connected(url, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            await gone.wait()
        assert len(await ended(stream)) < 2 * len(LONG)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
)
async def test_a_new_connection_displaces_the_oldest_without_a_whole_request(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS", 3)
    async with served() as url, httpx.AsyncClient(trust_env=False) as client:
        waiting = [await connected(url, sent) for _ in range(3)]
        assert (await client.get(url)).text == "x"
        assert await ended(waiting[0]) == b""
        for _, writer in waiting[1:]:
            writer.close()


async def test_metrics_are_refused_to_pages_of_other_sites() -> None:
    async with (
        serve_metrics(lambda: b"a_number 1\n", LOCAL, 0, token=None) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        assert (await client.get(url)).text == "a_number 1\n"
        assert (await client.post(url, json={})).status_code == 405
        for headers, status in (
            ({"host": "attacker.example"}, 421),
            ({"host": f"attacker@{LOCAL}"}, 421),
            ({"host": f"{LOCAL}:80.attacker.example"}, 421),
            ({"host": "[::1].attacker.example"}, 421),
            ({"origin": "https://attacker.example"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
        ):
            refused = await client.get(url, headers=headers)
            assert (refused.status_code, "a_number" in refused.text) == (status, False)


@pytest.mark.parametrize("host", ["LOCALHOST", "127.0.0.1:", "127.0.0.1:80", "[::1]", "[::1]:80"])
def test_a_name_of_this_machine_is_allowed_with_and_without_port(host: str) -> None:
    BrowserPolicy(LOCAL).check({"host": host})


def test_pages_of_other_sites_may_link_to_public_pages_only() -> None:
    policy = BrowserPolicy(LOCAL)
    link = {"host": LOCAL, "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    policy.check(link, is_page=True)
    policy.check({**link, "sec-fetch-site": "none"})
    policy.check({**link, "sec-fetch-site": "same-origin"})
    for is_page, headers in (
        (False, link),
        (True, {**link, "sec-fetch-dest": "image"}),
        (False, {**link, "sec-fetch-site": "same-site"}),
    ):
        with pytest.raises(ForbiddenOrigin):
            policy.check(headers, is_page=is_page)
