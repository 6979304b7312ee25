"""What a session has to tell whoever drives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kadi_client.errors import KadiError, RemoteError
from kadi_client.messages import Raw
from kadi_client.params import Invocation


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is complete; the broker knows this session as ``agent_id``."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The handshake failed; the session is of no further use."""

    error: KadiError


@dataclass(frozen=True, slots=True)
class Answered:
    """The request or invocation numbered ``key`` has its final result."""

    key: int
    result: Raw


@dataclass(frozen=True, slots=True)
class Failed:
    """The request or invocation numbered ``key`` ended with an error."""

    key: int
    error: RemoteError


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Nobody waits any more for the answer to the invocation ``request_id``."""

    request_id: str
    caller_lost: bool = False
    """Whether that is because the caller has disconnected."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event from a channel subscribed to."""

    channel: str
    data: Raw
    network: str | None
    timestamp: Any
    source: Any


SessionEvent = Ready | Refused | Answered | Failed | Invocation | CancelRequested | Delivered
