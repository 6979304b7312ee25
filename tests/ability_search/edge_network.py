"""A gateway over a real broker: before the real worker, or before tools a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.cli.tool_calls import NEEDED_TOOLS
from ability_search.extensions.gateway.gateway_command import open_gateway
from ability_search.tools.table import all_tools
from kadi_client import Call, Connection, Tool
from kadi_localnet.broker import serve_broker

SECONDS = 30.0
TOKEN = "the-token"


@asynccontextmanager
async def opened(settings: Settings, *, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """The base address of a gateway on a free port."""
    async with open_gateway(settings, host=host, port=0, wait=SECONDS) as part:
        yield str(part.details["url"])


def client(url: str, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False, **options)


def settings_for(broker: str, home: Path, **environ: str) -> Settings:
    names = {"HOME": str(home), "BROKER_URL": broker, "BROKER_NETWORKS": "global"}
    return load_settings({**names, **environ}, home)


@dataclass
class Stage:
    """A broker on which every part's tools are played; they answer what a test says."""

    url: str
    answers: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    """Answers wait for it."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """A call was cancelled."""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Published in each call that names a job, with its jobId."""
    _parts: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self) -> None:
        """Bring up the broker and the parts."""
        port = urlsplit(self.url).port or 0
        broker = await self._parts.enter_async_context(serve_broker("127.0.0.1", port))
        self.url = broker.url
        names = {name for names in NEEDED_TOOLS.values() for name in names}
        names |= {row.name for row in all_tools()}
        tools = [self._tool(name) for name in sorted(names)]
        offering = Connection(broker.url, role="ability", tools=tools, grace=0)
        await self._parts.enter_async_context(offering)

    async def close(self) -> None:
        """Take both away."""
        await self._parts.aclose()

    def _tool(self, name: str) -> Tool:
        async def handle(tool_input: dict[str, Any], call: Call) -> Any:
            self.asked.append((name, tool_input))
            self.begun.set()
            for channel, data in self.events:
                await call.publish(channel, {**data, "jobId": tool_input.get("jobId")})
            try:
                if self.hold is not None:
                    await self.hold.wait()
            except asyncio.CancelledError:
                self.dropped.set()
                raise
            return self.answers[name](tool_input)

        return Tool(name, name, {"type": "object"}, handle)


@asynccontextmanager
async def playing() -> AsyncIterator[Stage]:
    stage = Stage("ws://127.0.0.1:0")
    await stage.open()
    try:
        yield stage
    finally:
        await stage.close()


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(SECONDS):
        await event.wait()
