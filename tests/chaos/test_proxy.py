"""The proxy passes bytes on, and cuts, slows and holds connections on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from chaos.proxy import Proxy

SECONDS = 10.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echoing() -> AsyncIterator[Proxy]:
    """A proxy before a server that sends back what it gets, until the end of it."""

    echoes = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoes.append(asyncio.current_task())
        try:
            while block := await reader.read(1000):
                writer.write(block)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            await closed(writer)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    async def upstream() -> tuple[str, int]:
        return host, port

    async with server, asyncio.timeout(SECONDS):
        async with Proxy(upstream) as proxy:
            yield proxy
        await asyncio.gather(*filter(None, echoes))


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def connected(proxy: Proxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_everything_passes_in_both_directions_until_the_end() -> None:
    sent = bytes(range(256)) * 2_000
    async with echoing() as proxy:
        reader, writer = await connected(proxy)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent
        await closed(writer)
        assert proxy.connections == 1


async def test_cut_connections_break_and_new_ones_work() -> None:
    async with echoing() as proxy:
        lines = [await connected(proxy) for _ in range(3)]
        for reader, writer in lines:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        assert proxy.cut() == 3
        for reader, writer in lines:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            await closed(writer)
        reader, writer = await connected(proxy)
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        await closed(writer)


async def test_held_bytes_arrive_after_the_release() -> None:
    async with echoing() as proxy:
        reader, writer = await connected(proxy)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.hold()
        writer.write(b"b")
        answer = asyncio.create_task(reader.readexactly(1))
        _, later = await connected(proxy)
        while proxy.connections < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert not answer.done()
        proxy.release()
        assert await answer == b"b"
        await closed(later)
        await closed(writer)


async def test_a_slow_connection_takes_the_delay_in_each_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delays = []

    async def delayed(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr("chaos.proxy.asyncio.sleep", delayed)
    async with echoing() as proxy:
        reader, writer = await connected(proxy)
        proxy.delay = 0.05
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        assert delays == [0.05, 0.05]
        proxy.release()
        assert proxy.delay == 0
        await closed(writer)


async def test_without_a_server_the_connection_is_closed() -> None:
    async def nowhere() -> tuple[str, int]:
        raise OSError("the stack has no such address at the moment")

    async with Proxy(nowhere) as proxy, asyncio.timeout(SECONDS):
        reader, writer = await connected(proxy)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await closed(writer)
