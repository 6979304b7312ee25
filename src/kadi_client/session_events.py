"""Events that a session returns to its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kadi_client.errors import KadiError, RemoteError
from kadi_client.messages import Raw
from kadi_client.params import Invocation


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is complete; the broker assigned ``agent_id``."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The handshake failed; the session can no longer be used."""

    error: KadiError


@dataclass(frozen=True, slots=True)
class Answered:
    """The request or invocation numbered ``key`` succeeded; ``result`` is final."""

    key: int
    result: Raw


@dataclass(frozen=True, slots=True)
class Failed:
    """The request or invocation numbered ``key`` failed."""

    key: int
    error: RemoteError


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The answer to the invocation ``request_id`` is no longer needed."""

    request_id: str
    caller_lost: bool = False
    """True if the reason is that the caller disconnected."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event on a subscribed channel."""

    channel: str
    data: Raw
    network: str | None
    timestamp: Any
    source: Any


SessionEvent = Ready | Refused | Answered | Failed | Invocation | CancelRequested | Delivered
