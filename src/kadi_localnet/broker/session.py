"""Sessions and calls, the state of the router."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kadi_client.errors import SERVER_ERROR, KadiError
from kadi_client.messages import Raw, error_response, notification, response
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import Outbox


class CloseCode(IntEnum):
    """WebSocket close codes that the broker sends itself (RFC 6455, 7.4)."""

    NORMAL = 1000
    POLICY_VIOLATION = 1008
    TRY_AGAIN_LATER = 1013


class Refused(KadiError):
    """A request is answered with an error; if ``close`` is set, the session then ends."""

    def __init__(
        self, message: str, *, code: int = SERVER_ERROR, close: CloseCode | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.close = close


@dataclass(frozen=True, slots=True)
class Closing:
    """The close code and the reason with which a session ends."""

    code: CloseCode
    reason: str


@dataclass(slots=True)
class Changes:
    """Changes of one step of the router, for the server to carry out and the router to clean up."""

    ready: dict[Session, None] = field(default_factory=dict)
    """Sessions with something to send or to be closed, in the order in which they became ready."""

    ended: list[Session] = field(default_factory=list)
    """Sessions that began to close and are not yet removed."""


class Session:
    """The state of one connection; compared by identity."""

    __slots__ = (
        "_changes",
        "agent_id",
        "asked_networks",
        "calling",
        "closing",
        "credentials",
        "display_name",
        "id",
        "last_routed",
        "last_seen",
        "networks",
        "nonce",
        "nonce_expires",
        "opened",
        "outbox",
        "serving",
        "subscriptions",
        "tools",
    )

    def __init__(
        self, id_: str, limits: Limits, changes: Changes, now: float, networks: tuple[str, ...]
    ) -> None:
        self.id = id_
        self.opened = now
        self.last_seen = now
        self.agent_id: str | None = None
        self.credentials: Raw | None = None
        """Session id and public key as JSON, sent to providers as ``kadi_caller``."""
        self.display_name: str | None = None
        self.nonce: str | None = None
        self.nonce_expires = now
        self.networks = networks
        self.asked_networks: tuple[str, ...] = ()
        self.tools: tuple[str, ...] = ()
        self.subscriptions: set[tuple[str, str | None]] = set()
        self.calling: dict[str | int, Call] = {}
        self.serving: dict[str, Call] = {}
        self.last_routed = 0
        self.outbox = Outbox(max_frames=limits.outbox_frames, max_bytes=limits.outbox_bytes)
        self.closing: Closing | None = None
        self._changes = changes

    def send(self, frame: bytes) -> None:
        """Queue a frame that must not be dropped; if there is no room, close the session."""
        if self.closing is not None:
            return
        if self.outbox.put_reply(frame):
            self._changes.ready[self] = None
            return
        self.outbox.clear()
        self.close(CloseCode.TRY_AGAIN_LATER, "outbox is full: messages are not read fast enough")

    def send_event(self, frame: bytes) -> None:
        """Queue a frame that may be dropped."""
        self.outbox.put_event(frame)
        self._changes.ready[self] = None

    def close(self, code: CloseCode, reason: str) -> None:
        """Close the session after sending what is queued; later messages are ignored."""
        if self.closing is None:
            self.closing = Closing(code, reason)
            self._changes.ready[self] = None
            self._changes.ended.append(self)


@dataclass(slots=True, eq=False)
class Call:
    """A call in flight; ``timeout`` in seconds, ``started`` on the router's clock."""

    id: str
    """Request id sent to the provider."""
    request_id: str | int
    """Request id sent to the caller: the caller's own, or else ``id``."""
    tool: str
    follows: str
    """Id for the log that follows the call across agents; ``id`` if the caller sent none."""
    caller: Session
    provider: Session
    started: float
    timeout: float
    direct: Raw
    """JSON-RPC id of the request if the caller wants a direct reply; else absent."""

    def completed(self, result: Raw) -> bytes:
        """Encode the frame that sends the result to the caller."""
        if len(self.direct):
            return response(self.direct, result)
        return answered(self.request_id, result)

    def failed(self, text: str) -> bytes:
        """Encode the frame that sends an error to the caller."""
        if len(self.direct):
            return error_response(self.direct, text)
        return notification("kadi.ability.response", {"requestId": self.request_id, "error": text})


def answered(request_id: str | int, result: Any) -> bytes:
    """Encode the notification that sends the result of a call."""
    return notification("kadi.ability.response", {"requestId": request_id, "result": result})
