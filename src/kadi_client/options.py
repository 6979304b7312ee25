"""The options of connections to brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from kadi_client.identity import Identity
from kadi_client.provider import Observe, OnBusy, Provider, noted
from kadi_client.session import MAX_MESSAGE_BYTES
from kadi_client.tools import Tool


class ConnectionOptions(TypedDict, total=False):
    """The fields of :class:`Options`, as keyword arguments."""

    identity: Identity | None
    name: str | None
    version: str | None
    role: Literal["agent", "ability"]
    max_message_bytes: int
    open_timeout: float
    connect_timeout: float
    grace: float
    max_backoff: float | None
    max_concurrent: int
    max_queued: int
    observe: Observe
    on_busy: OnBusy | None
    provider_patience: Mapping[str, float]
    propagate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that hold for all brokers of an agent alike.

    Raises:
        ValueError: if a value is invalid; the message names it.
    """

    identity: Identity | None = None
    """Key pair of the agent; generated if not given."""
    name: str | None = None
    """Display name; ``loadBroker`` of TypeScript agents finds an ability by it."""
    version: str | None = None
    """Version of the agent or ability."""
    role: Literal["agent", "ability"] = "agent"
    """``"ability"`` for an agent that mainly serves tools."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """Maximum size of a message in either direction."""
    open_timeout: float = 10.0
    """Seconds for one attempt: connecting, handshake, registration."""
    connect_timeout: float = 0.0
    """Seconds to keep trying to get the first session; 0 tries each broker once. Before the first
    session, a refused identity is not tried again."""
    grace: float = 10.0
    """Seconds for running handlers to finish on closing."""
    max_backoff: float | None = None
    """Longest pause between two attempts to reconnect, in seconds; 30 if not given, and 2 to a
    broker on this machine."""
    max_concurrent: int = 128
    """Handlers that run at a time, half of them for one caller, whichever broker calls come from.
    This and the three below are of no use if the tools are given as a :class:`.Provider`."""
    max_queued: int = 1024
    """Maximum number of calls waiting for a handler; more are refused."""
    observe: Observe = noted
    """See :data:`kadi_client.provider.Observe`."""
    on_busy: OnBusy | None = None
    """See :class:`kadi_client.provider.Provider`."""
    provider_patience: Mapping[str, float] | None = None
    """Tools, and the seconds that their calls wait for a restarting provider: one that has answered
    on this connection before and is not connected now."""
    propagate: bool = True
    """Send the call id and the trace with calls, see :mod:`kadi_client.context`."""

    def __post_init__(self) -> None:
        if self.max_message_bytes < 1024:
            raise ValueError("max_message_bytes must be at least 1024")

    def provider(self, tools: Iterable[Tool] | Provider) -> Provider:
        """Return what runs the handlers of tools."""
        if isinstance(tools, Provider):
            return tools
        return Provider(
            tools,
            max_concurrent=self.max_concurrent,
            max_queued=self.max_queued,
            observe=self.observe,
            on_busy=self.on_busy,
        )
