"""One agent on several brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from kadi_client.connection import BROKER_TIMEOUT, Connection, Invoker
from kadi_client.errors import AuthenticationError, KadiError, NotConnected, RemoteError
from kadi_client.identity import Identity
from kadi_client.messages import Raw
from kadi_client.options import ConnectionOptions, Options
from kadi_client.subscriptions import Subscription
from kadi_client.tools import Tool, agents_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_SECONDS = 2.0
"""Seconds that the other brokers have to connect, after the first one, before work begins."""
_RELIST_SECONDS = 1.0
"""A listing that is younger than this is not fetched again."""
_LIST_SECONDS = 5.0
"""Seconds that a broker has to list its tools."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a broker, as for :class:`Connection`, and the networks to join on it."""

    url: str
    networks: Sequence[str] = ("global",)


class _Member:
    """One of the brokers, and which agents offer which tool there, as it last listed them."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.doubted = True
        """Whether the listing may be wrong: there is none yet, or a call failed."""
        self._agents: dict[str, frozenset[str]] = {}
        self._listed_at = float("-inf")
        self._listed_in = 0

    async def offers(self, tool: str, target: str | None, timeout: float) -> bool:
        """Return whether a tool is offered, by the agent ``target`` if it is given.

        A broker that lists no agents may have any.
        """
        if self.doubted or self._listed_in != self.connection.sessions:
            await self.list_tools(timeout)
        agents = self._agents.get(tool)
        return agents is not None and (target is None or not agents or target in agents)

    async def list_tools(self, timeout: float) -> None:
        """List the tools again, unless the listing is younger than ``_RELIST_SECONDS``."""
        clock = asyncio.get_running_loop().time
        session = self.connection.sessions
        if self._listed_in == session and clock() - self._listed_at < _RELIST_SECONDS:
            return
        try:
            tools = await self.connection.list_tools(include_providers=True, timeout=timeout)
        except KadiError as exc:
            logger.warning("broker %s does not list its tools: %s", self.name, exc)
            tools = []
        self._agents = {str(each.get("name")): agents_of(each) for each in tools}
        self._listed_at, self._listed_in, self.doubted = clock(), session, False


class Brokers(Invoker):
    """An agent that is connected to several brokers at once.

    Example:
        brokers = {"local": Endpoint("ws://localhost:8080/kadi", networks=["global"])}
        async with Brokers(brokers, name="reader") as network:
            print(await network.invoke("search-collections", {}))

    It serves its tools on all brokers, and publishes events on all of them. A call goes to the
    first broker, in the order given, that lists the tool, or lists it of the agent that must serve
    the call. Entering needs one broker; the others are connected as soon as they can be reached.

    Args:
        brokers: The brokers, each under a name for the log.
        tools: Tools to serve from the start; :meth:`serve` replaces them.
        options: See :class:`kadi_client.options.Options`.

    Raises:
        ValueError: if there is no broker, or an argument is not usable; the message names it.
    """

    def __init__(
        self,
        brokers: Mapping[str, Endpoint],
        *,
        tools: Iterable[Tool] = (),
        **options: Unpack[ConnectionOptions],
    ) -> None:
        if not brokers:
            raise ValueError("brokers: give at least one")
        identity = options["identity"] = options.get("identity") or Identity.generate()
        self._provider = Options(**options).provider(tools)
        self._members = [
            _Member(name, Connection(at.url, networks=at.networks, tools=self._provider, **options))
            for name, at in brokers.items()
        ]
        self._offered: dict[tuple[str, str | None], _Member] = {}
        self._running: list[asyncio.Task[None]] = []
        self.agent_id = identity.agent_id
        """Id of this agent, as its brokers derive it."""

    @property
    def connected(self) -> list[str]:
        """Names of the brokers that there is a session with."""
        return [member.name for member in self._members if member.connection.connected]

    @property
    def calls_waiting(self) -> int:
        """Calls of its own tools that wait for their turn."""
        return self._provider.waiting

    # Connecting

    async def open(self) -> None:
        """Connect to the brokers; returns once there is a session with one of them.

        Raises:
            KadiError: if none can be reached; it is that of the first broker.
        """
        opening = [asyncio.create_task(member.connection.open()) for member in self._members]
        try:
            for attempt in asyncio.as_completed(opening):
                with suppress(KadiError):
                    await attempt
                    break
            else:
                opening[0].result()
            await asyncio.wait(opening, timeout=SETTLE_SECONDS)
        except BaseException:
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
            await self.close()
            raise
        self._running = [
            asyncio.create_task(self._run(task, member))
            for task, member in zip(opening, self._members, strict=True)
        ]

    async def _run(self, opening: asyncio.Task[None], member: _Member) -> None:
        """Stay with a broker; one that did not connect in time is tried without a limit."""
        try:
            await opening
        except AuthenticationError as exc:
            logger.error("broker %s: %s; going on without it", member.name, exc)
            raise
        except KadiError as exc:
            logger.warning("broker %s: %s; going on without it for now", member.name, exc)
            await member.connection.open(connect_timeout=float("inf"))
        await member.connection.serve_forever()

    async def close(self) -> None:
        """Close all connections in order; closing again is harmless."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await asyncio.gather(*(member.connection.close() for member in self._members))

    async def serve_forever(self) -> None:
        """Wait until every connection is closed from elsewhere; cancel it to stop waiting.

        Raises:
            KadiError: if no broker can be used any more.
        """
        await asyncio.wait(self._running)
        if all(not task.cancelled() and task.exception() for task in self._running):
            self._running[0].result()

    # Offering, events

    async def serve(self, tools: Iterable[Tool]) -> None:
        """Replace the tools offered on all brokers; calls already running are not touched.

        A broker without a session gets them with the next one.

        Raises:
            ValueError: if two tools share a name.
            KadiError: if a broker refuses them or does not confirm.
        """
        self._provider.replace(tools)
        await asyncio.gather(*(member.connection.register() for member in self._connected()))

    async def publish(self, channel: str, data: Any, *, timeout: float = BROKER_TIMEOUT) -> None:
        """Publish an event on all brokers that are connected.

        Raises:
            KadiError: if no broker accepted it; it is that of the first one.
        """
        if not self._connected():
            raise NotConnected("no broker is connected")
        await self._on_each(lambda each: each.publish(channel, data, timeout=timeout))

    def subscribe(
        self, *patterns: str, network: str | None = None, max_queued: int = 1024
    ) -> Subscription:
        """Receive the events of all brokers; arguments as for :meth:`Connection.subscribe`.

        An event that reaches this agent through two brokers is received twice. Entering raises if
        a broker that is connected refuses the subscription.
        """
        return Subscription(
            patterns,
            network=network,
            max_queued=max_queued,
            activate=self._attach,
            deactivate=self._detach,
        )

    async def _attach(self, subscription: Subscription) -> None:
        attached = (each.connection.attach(subscription, wait=False) for each in self._members)
        for outcome in await asyncio.gather(*attached, return_exceptions=True):
            if isinstance(outcome, BaseException):
                await self._detach(subscription)
                raise outcome

    async def _detach(self, subscription: Subscription) -> None:
        await asyncio.gather(*(each.connection.detach(subscription) for each in self._members))

    # Calling

    async def invoke_raw(
        self, tool: str, tool_input: Any, *, timeout: float = 30.0, target_agent: str | None = None
    ) -> Raw:
        """Call a tool where it is offered; arguments and errors as for :class:`Connection`.

        A tool that no agent offers is called on the first connected broker, whose error says so.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        member = self._members[0]
        if len(self._members) > 1:
            member = await self._route(tool, target_agent, min(timeout, _LIST_SECONDS))
        try:
            return await member.connection.invoke_raw(
                tool, tool_input, timeout=max(0.001, deadline - clock()), target_agent=target_agent
            )
        except (RemoteError, NotConnected):
            member.doubted = True  # perhaps its provider has left
            raise

    async def _route(self, tool: str, target: str | None, timeout: float) -> _Member:
        """Return the broker to call a tool on, if given of the agent ``target``.

        That is a connected broker where it is offered; else the one where it was offered last, if
        that is about to come back; else any, whose error says that no agent offers it.
        """
        for stale in (True, False):
            members = self._connected()
            if not stale:
                await asyncio.gather(*(member.list_tools(timeout) for member in members))
            for member in members:
                if await member.offers(tool, target, timeout):
                    self._offered[tool, target] = member
                    return member
        last = self._offered.get((tool, target))
        if last is not None and not last.connection.connected:
            return last
        return (members or self._members)[0]

    async def providers(self, tool: str, *, timeout: float = BROKER_TIMEOUT) -> frozenset[str]:
        """Return the ids of the agents that offer a tool on any broker that is connected.

        Raises:
            KadiError: if no broker lists its tools; it is that of the first one.
        """
        return frozenset(await self.provider_names(tool, timeout=timeout))

    async def provider_names(self, tool: str, *, timeout: float = BROKER_TIMEOUT) -> dict[str, str]:
        """Return the display names of the agents of :meth:`providers` by their ids.

        An agent without a name has an empty one. Raises as :meth:`providers` does.
        """
        names: dict[str, str] = {}
        for listed in await self._on_each(lambda each: each.provider_names(tool, timeout=timeout)):
            names.update(listed)
        return names

    async def _on_each(self, act: Callable[[Connection], Awaitable[T]]) -> list[T]:
        """Return the results of those brokers that are connected and did not fail.

        Raises the first error if all failed, or if it is not a :class:`KadiError`.
        """
        outcomes = await asyncio.gather(
            *(act(member.connection) for member in self._connected()), return_exceptions=True
        )
        results = [each for each in outcomes if not isinstance(each, BaseException)]
        for each in outcomes:
            if isinstance(each, BaseException) and not (results and isinstance(each, KadiError)):
                raise each
        return results

    def _connected(self) -> list[_Member]:
        return [member for member in self._members if member.connection.connected]
