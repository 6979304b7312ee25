"""A connection to a KADI broker that survives the loss of a session."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, Self, Unpack

from opentelemetry.trace import SpanKind

from kadi_client import errors
from kadi_client.context import current
from kadi_client.identity import Identity
from kadi_client.messages import Raw, decode
from kadi_client.options import ConnectionOptions, Options
from kadi_client.params import CALLER_LOST, CancelParams, Invocation
from kadi_client.provider import Provider
from kadi_client.reconnection import Reconnecting
from kadi_client.session import Received, Session, warn_of_dropped_networks
from kadi_client.subscriptions import Event, Subscription, pattern_params
from kadi_client.tools import Tool, agent_names
from kadi_client.tracing import RPC, span

logger = logging.getLogger(__name__)

DEFAULT_URL = "ws://localhost:8080/kadi"
_PROVIDER_PAUSE = 0.1
"""Seconds between two attempts to find a provider."""
BROKER_TIMEOUT = 10.0
"""Seconds for methods that the broker answers itself: publish, subscribe, list, register."""


class Invoker(Protocol):
    """Calls tools inside ``async with``: :meth:`invoke` over the :meth:`invoke_raw` of its kind."""

    async def open(self) -> None:
        """Connect; ``async with`` does so on entering."""

    async def close(self) -> None:
        """Close in order; ``async with`` does so on leaving."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def invoke(
        self,
        tool: str,
        tool_input: Any,
        *,
        timeout: float = 30.0,
        target_agent: str | None = None,
        check: bool = True,
    ) -> Any:
        """Call a tool and return its answer as plain Python values.

        Example:
            found = await broker.invoke("search-query", {"collection": "notes", "query": "backup"})
            print(found["count"])

        Cancelling gives up the call and cancels it at the provider.

        Args:
            tool: Name of the tool.
            tool_input: Input of the tool, a JSON object.
            timeout: Seconds for the whole call, including the wait for a lost session.
            target_agent: Id of the agent that must serve the call; any provider if not given.
            check: Raise :class:`ToolError` for an answer with ``success: false``; otherwise
                return it like any other answer.

        Raises:
            ToolError: if the tool answered that it failed.
            CallTimeout: if no answer came in time.
            RemoteError: if the provider or the broker answered with an error.
            NotConnected: if the session was lost during the call, or the connection is closed.
                Whether the tool ran is not known then.
            FrameTooLarge: if the input is too large to send.
            TypeError, ValueError: if the input is not JSON, or holds half a surrogate pair.
            ProtocolError: if the result cannot be decoded.
        """
        answer = decode(
            await self.invoke_raw(tool, tool_input, timeout=timeout, target_agent=target_agent)
        )
        if check and isinstance(answer, dict) and answer.get("success") is False:
            raise errors.ToolError(tool, answer)
        return answer

    async def invoke_raw(
        self, tool: str, tool_input: Any, *, timeout: float = 30.0, target_agent: str | None = None
    ) -> Raw:
        """Call a tool as :meth:`invoke` does, and return its answer as JSON, whatever it says."""

    async def providers(self, tool: str, *, timeout: float = 30.0) -> frozenset[str]:
        """Return the ids of the agents that offer a tool; empty if the broker lists none.

        Raises as :meth:`invoke` does.
        """

    async def provider_names(self, tool: str, *, timeout: float = 30.0) -> dict[str, str]:
        """Return the display names of the agents that offer a tool by their ids.

        An agent without a name has an empty one. Raises as :meth:`invoke` does.
        """


class Connection(Reconnecting, Invoker):
    """A connection to a broker that calls tools, serves tools and exchanges events.

    Example:
        async with Connection("ws://localhost:8080/kadi", name="reader") as broker:
            found = await broker.invoke("search-collections", {})
            print(found["collections"])

    Entering the context connects and registers, or raises. If the session is lost, calls in
    flight fail at once with :class:`NotConnected`, and handlers running for that session are
    cancelled. The connection then reconnects in the background, with exponential backoff and full
    jitter, and keeps the identity, the tools and the subscriptions. Calls made meanwhile wait for
    the new session within their own timeout. Leaving the context refuses new calls, gives running
    handlers ``grace`` seconds to finish, says goodbye and ends every wait.

    Args:
        url: ``ws://`` or ``wss://`` address of the broker, or those of several brokers that are one
            network, separated by commas: if one is lost, the next one is used.
        networks: Networks to join; tools and events are shared within a network.
        tools: Tools to serve from the start, which :meth:`serve` replaces; or a provider that
            several connections of one agent share.
        options: See :class:`kadi_client.options.Options`.

    Raises:
        ValueError: if an argument is invalid; the message names it.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        networks: Sequence[str] = ("global",),
        tools: Iterable[Tool] | Provider = (),
        **options: Unpack[ConnectionOptions],
    ) -> None:
        if isinstance(networks, str) or not networks:
            raise ValueError("networks: give a list of at least one network")
        given = Options(**options)
        identity = given.identity or Identity.generate()
        new_session = partial(
            Session,
            identity=identity,
            role=given.role,
            name=given.name,
            version=given.version,
            networks=networks,
            max_message_bytes=given.max_message_bytes,
        )
        super().__init__(url, new_session, given.provider(tools), given)
        self._propagate = given.propagate
        self._provider_patience = dict(given.provider_patience or {})
        self._answered: set[str] = set()
        self._subscriptions: set[Subscription] = set()
        self.agent_id = identity.agent_id
        """Id of this agent; once connected, the id that the broker assigned."""

    @property
    def calls_waiting(self) -> int:
        """Number of calls to this agent's tools that wait for a free handler."""
        return self._provider.waiting

    # Calling

    async def invoke_raw(
        self, tool: str, tool_input: Any, *, timeout: float = 30.0, target_agent: str | None = None
    ) -> Raw:
        """Call a tool as :meth:`invoke` does, and return its answer as unparsed JSON.

        An answer that reports a failure is returned too, not raised. ``tool_input`` may be or
        contain :class:`kadi_client.messages.Raw`, which is sent unchanged.
        """

        def send(session: Session, remaining: float) -> int:
            return session.invoke(
                tool,
                tool_input,
                timeout=remaining,
                target_agent=target_agent,
                context=current() if self._propagate else None,
            )

        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        patience = self._provider_patience.get(tool, 0.0) if tool in self._answered else 0.0
        give_up = clock() + min(timeout, patience)
        remaining = timeout
        with span(tool, SpanKind.CLIENT, RPC):
            while True:
                try:
                    answer = await self._ask(tool, remaining, send)
                except errors.NoProvider:  # nothing ran
                    if clock() + _PROVIDER_PAUSE >= give_up:
                        raise
                    await asyncio.sleep(_PROVIDER_PAUSE)
                    remaining = max(0.001, deadline - clock())
                else:
                    self._answered.add(tool)
                    return answer

    async def providers(self, tool: str, *, timeout: float = BROKER_TIMEOUT) -> frozenset[str]:
        """Return the ids of the agents that offer a tool; empty if the broker lists none.

        Raises as :meth:`invoke` does.
        """
        return frozenset(await self.provider_names(tool, timeout=timeout))

    async def provider_names(self, tool: str, *, timeout: float = BROKER_TIMEOUT) -> dict[str, str]:
        """Return the display names of the agents that offer a tool by their ids.

        An agent without a name has an empty one. Raises as :meth:`invoke` does.
        """
        tools = await self.list_tools(include_providers=True, timeout=timeout)
        return next((agent_names(each) for each in tools if each.get("name") == tool), {})

    async def list_tools(
        self,
        *,
        networks: Sequence[str] | None = None,
        include_providers: bool = False,
        timeout: float = BROKER_TIMEOUT,
    ) -> list[dict[str, Any]]:
        """Return the broker's descriptions of the tools that this agent can call.

        Example:
            for tool in await broker.list_tools():
                print(tool["name"], tool["description"])

        Raises as :meth:`invoke` does.

        Args:
            networks: Networks to search; all networks of this agent if not given.
            include_providers: Add to each tool the agents that serve it.
            timeout: Seconds to wait for the broker.
        """
        method = "kadi.ability.list"
        params: dict[str, Any] = {"includeProviders": include_providers}
        if networks is not None:
            params["networks"] = list(networks)
        try:
            answer = decode(
                await self._ask(method, timeout, lambda session, _: session.request(method, params))
            )
        except errors.RemoteError as exc:
            if exc.code != errors.METHOD_NOT_FOUND:
                raise
            # Newer brokers may offer it as a tool only.
            answer = await self.invoke(method, params, timeout=timeout)
        tools = answer.get("tools") if isinstance(answer, dict) else None
        if not isinstance(tools, list):
            raise errors.ProtocolError("the broker's list of tools has no 'tools'")
        return [tool for tool in tools if isinstance(tool, dict)]

    async def _ask(self, what: str, timeout: float, send: Callable[[Session, float], int]) -> Raw:
        """Wait for a session, send one request and return its answer."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        try:
            session = self._session or await self._next_session(deadline)
            key = send(session, max(0.001, deadline - clock()))
            return await session.answer_to(key, deadline)
        except TimeoutError as exc:
            raise errors.CallTimeout(what, timeout) from exc

    async def _ask_each(
        self, method: str, timeout: float, params_of: Callable[[Session], Sequence[Any]]
    ) -> None:
        """Send several requests at once and wait for all answers; raise the first error."""
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            session = await self._next_session(deadline)
            keys = [session.request(method, params) for params in params_of(session)]
            answers = (session.answer_to(key, deadline) for key in keys)
            for outcome in await asyncio.gather(*answers, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        except TimeoutError as exc:
            raise errors.CallTimeout(method, timeout) from exc

    # Serving

    async def serve(self, tools: Iterable[Tool]) -> None:
        """Replace the tools that this agent serves; running calls continue.

        Example:
            async def greet(tool_input, call):
                return {"text": f"Hello, {tool_input['name']}!"}

            await broker.serve([Tool("greet", "Greet by name.", {"type": "object"}, greet)])

        Without a session it returns at once, and the next session registers the tools.

        Raises:
            ValueError: if two tools share a name.
            FrameTooLarge: if the tool descriptions are too large to send.
            RemoteError: if the broker refuses the registration.
            CallTimeout, NotConnected: if the broker does not confirm; the next session retries.
        """
        self._provider.replace(tools)
        await self.register()

    async def register(self) -> None:
        """Register the current tools with the broker again; raises as :meth:`serve` does."""
        if self._session is not None:
            method = "kadi.agent.register"

            def send(session: Session, _remaining: float) -> int:
                self._registered = self._provider.tools
                return session.request(method, session.registration(self._registered))

            warn_of_dropped_networks(await self._ask(method, BROKER_TIMEOUT, send))

    # Events

    async def publish(
        self,
        channel: str,
        data: Any,
        *,
        network: str | None = None,
        timeout: float = BROKER_TIMEOUT,
    ) -> None:
        """Publish an event and wait until the broker has accepted it; raises as :meth:`invoke`.

        Example:
            await broker.publish("kitchen.timer", {"minutes": 3})

        Without a ``network`` the event is published on all networks of this agent. An agent that
        shares several of them receives it once from the local broker, and once per network from
        other brokers.
        """
        await self._ask_each(
            "kadi.event.publish",
            timeout,
            lambda session: session.publications(channel, data, network),
        )

    def subscribe(
        self,
        *patterns: str,
        network: str | None = None,
        max_queued: int = 1024,
        from_providers_of: str | None = None,
    ) -> Subscription:
        """Return a subscription to the events of all channels that match a pattern.

        Example:
            async with broker.subscribe("kitchen.#") as events:
                await broker.publish("kitchen.timer", {"minutes": 3})
                async for event in events:
                    print(event.channel, event.data)
                    break

        Dots separate the words of a channel. In a pattern, ``*`` matches one word and ``#`` any
        number of words. Entering the block subscribes, and raises as :meth:`invoke` does.

        Args:
            patterns: One or more patterns.
            network: Network of the events; all networks of this agent if not given.
            max_queued: Maximum number of unread events; the oldest are dropped first.
            from_providers_of: A tool; events of agents that do not offer it are dropped.
        """
        tool = from_providers_of
        return Subscription(
            patterns,
            network=network,
            max_queued=max_queued,
            activate=self.attach,
            deactivate=self.detach,
            publishers=None if tool is None else partial(self.providers, tool),
        )

    async def attach(self, subscription: Subscription, *, wait: bool = True) -> None:
        """Deliver the events of this connection to a subscription; raises as :meth:`subscribe`.

        Args:
            subscription: A subscription that is not attached to this connection yet.
            wait: Wait for a session if there is none; otherwise the next session subscribes.
        """
        self._subscriptions.add(subscription)
        subscription.attach()
        if not wait and self._session is None:
            return
        wanted = pattern_params(subscription.patterns, subscription.network)
        try:
            await self._ask_each("kadi.event.subscribe", BROKER_TIMEOUT, lambda _: wanted)
        except BaseException:
            await self.detach(subscription)
            raise

    async def detach(self, subscription: Subscription) -> None:
        """Stop delivering events to a subscription."""
        self._subscriptions.discard(subscription)
        still_wanted = {
            pattern
            for other in self._subscriptions
            if other.network == subscription.network
            for pattern in other.patterns
        }
        unwanted = [pattern for pattern in subscription.patterns if pattern not in still_wanted]
        session = self._session
        if session is not None:
            for each in pattern_params(unwanted, subscription.network):
                session.post("kadi.event.unsubscribe", each)

    # The session

    def _ready(self, session: Session) -> None:
        """Set up a new session: register tools that changed meanwhile and subscribe again."""
        self.agent_id = session.agent_id
        if self._registered is not self._provider.tools:
            self._registered = self._provider.tools
            try:
                session.post("kadi.agent.register", session.registration(self._registered))
            except errors.FrameTooLarge as exc:
                logger.error("the new tools cannot be registered: %s", exc)
        wanted: defaultdict[str | None, dict[str, None]] = defaultdict(dict)
        for subscription in self._subscriptions:
            wanted[subscription.network].update(dict.fromkeys(subscription.patterns))
        for network, patterns in wanted.items():
            for each in pattern_params(patterns, network):
                session.post("kadi.event.subscribe", each)

    def _ended(self) -> None:
        for subscription in self._subscriptions:
            subscription.detach()

    def _received(self, received: Received, session: Session) -> None:
        match received:
            case Invocation():
                self._provider.accept(received, session, session=session)
            case CancelParams(request_id, reason):
                abandoned = reason == CALLER_LOST
                self._provider.cancel(str(request_id), session=session, abandoned=abandoned)
            case Event():
                for subscription in self._subscriptions:
                    subscription.put(received)
