"""The state of the network: its tools, and which components have all of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ability_search.client.tool_client import ToolClient
from ability_search.extensions.cli.tool_calls import (
    LiveConnection,
    Unavailable,
    broker_unavailable,
    quoted,
)
from ability_search.extensions.gateway.settings import Gateway
from ability_search.wire import Result
from kadi_client import KadiError

_BROKER_SECONDS = 5.0
_CHECK_SECONDS = 3.0
_PROVIDER = {"agent_id": "agentId", "name": "displayName"}
"""Field of a provider -> its name in the broker's listing."""
Listing = Sequence[Mapping[str, Any]]
"""Tools with their providers, as the broker lists them."""


class ComponentHealth(Result):
    """The state of one component."""

    state: Literal["up", "down"]
    providers: int | None = Field(None, description="Number of providers.")
    missing: list[str] | None = Field(None, description="Its tools without a provider.")


class Health(Result):
    """The state of each component."""

    status: Literal["up", "down"]
    parts: dict[str, ComponentHealth]


class Provider(Result):
    """A provider of a tool."""

    agent_id: str | None = None
    name: str | None = None


class NetworkTool(Result):
    """A tool on the network."""

    name: str
    description: str
    providers: list[Provider] = Field(
        description="Providers; empty if the broker does not list them."
    )


class NetworkTools(Result):
    """The tools on the network."""

    tools: list[NetworkTool]


@dataclass(slots=True)
class Network:
    """Reads the tools on the network; concurrent callers share one request to the broker."""

    live: LiveConnection
    needed: Mapping[str, Sequence[str]]
    """The tools that must be on the network, by component."""
    _reading: asyncio.Task[Listing] | None = None

    async def tools(self) -> Listing:
        """Return the tools as the broker lists them.

        Raises:
            Unavailable: if the broker cannot be reached, or does not answer.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read())
            reading.add_done_callback(self._end)
        return await asyncio.shield(reading)

    async def states(self) -> dict[str, ComponentHealth]:
        """Return the current state of each component; raises as :meth:`tools`."""
        listed = {str(tool.get("name")): tool for tool in await self.tools()}
        states = {}
        for component, names in self.needed.items():
            missing = [name for name in names if name not in listed]
            # A broker may list tools without their providers.
            counts = [len(listed.get(name, {}).get("providers") or ("?",)) for name in names]
            states[component] = ComponentHealth(
                state="down" if missing else "up",
                providers=0 if missing else min(counts),
                missing=missing or None,
            )
        return states

    async def _read(self) -> Listing:
        connection = await self.live.connection()
        try:
            return await connection.list_tools(include_providers=True, timeout=_BROKER_SECONDS)
        except KadiError as exc:
            raise broker_unavailable(exc) from exc

    def _end(self, reading: asyncio.Task[Listing]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # retrieved: the callers may be gone


def network_tools(listed: Iterable[Mapping[str, Any]]) -> NetworkTools:
    """Return the tools that a broker lists, in order of their names."""
    tools = [
        NetworkTool(
            name=str(tool.get("name") or ""),
            description=str(tool.get("description") or ""),
            providers=[_provider(each) for each in tool.get("providers") or ()],
        )
        for tool in listed
    ]
    return NetworkTools(tools=sorted(tools, key=lambda tool: tool.name))


def _provider(listed: Any) -> Provider:
    given = listed if isinstance(listed, dict) else {}
    return Provider(
        **{field: str(given[key]) for field, key in _PROVIDER.items() if given.get(key)}
    )


async def check_gateway(client: ToolClient) -> str:
    """Return that the gateway of the running stack accepts calls; an empty text if it has none.

    Raises:
        Unavailable: if it does not.
    """
    parts = client.target.stack.parts if client.target.stack else ()
    address = next((part.address for part in parts if part.name == "gateway"), "")
    if not address:
        return ""
    hint = "See the log of the gateway; `ability-search status` shows the running components."
    hosts = client.settings.of(Gateway).hosts
    headers = {"Host": hosts[0]} if hosts else {}
    import httpx

    try:
        async with httpx.AsyncClient(timeout=_CHECK_SECONDS, trust_env=False) as http:
            answer = await http.get(f"{address}/ready", headers=headers)
    except httpx.HTTPError as exc:
        words = quoted(str(exc))
        problem = f"{address} does not answer: {type(exc).__name__}: {words}"
        raise Unavailable(problem, hint=hint) from exc
    if not answer.is_success:
        words = quoted(answer.text)
        problem = f"{address} accepts no calls: HTTP {answer.status_code}: {words}"
        raise Unavailable(problem, hint=hint)
    return f"{address} accepts calls"
