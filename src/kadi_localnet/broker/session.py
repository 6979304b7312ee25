"""Sessions and calls, the state of the router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from kadi_client.errors import SERVER_ERROR, ProtocolError
from kadi_client.messages import ABSENT, Raw, error_response, notification, response
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import Memory, Outbox


class CloseCode(IntEnum):
    """WebSocket close codes that the broker sends itself (RFC 6455, 7.4)."""

    NORMAL = 1000
    POLICY_VIOLATION = 1008
    TRY_AGAIN_LATER = 1013


class Refused(ProtocolError):
    """A request is answered with an error; if ``close`` is set, the session then ends."""

    def __init__(
        self, message: str, *, code: int = SERVER_ERROR, close: CloseCode | None = None
    ) -> None:
        super().__init__(message, code=code)
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


class Provider:
    """A session of this broker or of another one, as far as it offers tools.

    It is compared by identity.
    """

    def __init__(self, id_: str, networks: tuple[str, ...]) -> None:
        self.id = id_
        self.agent_id: str | None = None
        self.display_name: str | None = None
        self.networks = networks
        self.tools: tuple[str, ...] = ()
        self.serving: dict[str, Call] = {}
        """Calls of callers of this broker, by id."""
        self.last_routed = 0

    @property
    def load(self) -> int:
        """Number of its calls in progress, whichever broker they come from."""
        return len(self.serving)

    def has_room(self, size: int, caller: Session) -> bool:
        """Return True if a frame of ``size`` bytes can be sent to it.

        A caller for which much is waiting must leave room to others.
        """
        raise NotImplementedError

    def begin(self, call: Call, frame: bytes) -> None:
        """Send it the frame of a call."""
        raise NotImplementedError

    def abandon(self, call: Call, **why: str) -> None:
        """Tell it that no answer to a call is expected any more."""
        raise NotImplementedError


class Absent(Provider):
    """The place of a provider that has left, where calls wait for their tools to come back.

    They wait only while less than half of the memory is used.
    """

    def __init__(
        self, provider: Provider, limits: Limits, memory: Memory, frames: dict[str, bytes]
    ) -> None:
        super().__init__(provider.agent_id or "", provider.networks)
        self.agent_id = provider.agent_id
        self.tools = provider.tools
        self.frames = frames
        """The frames of the calls that wait here, or in other places with the same room."""
        self._limits = limits
        self._memory = memory

    def has_room(self, size: int, caller: Session) -> bool:
        """See :class:`Provider`."""
        free = self._limits.waiting - len(self.frames)
        mine = (call.provider for call in caller.calling.values())
        own = sum(isinstance(each, Absent) and each.frames is self.frames for each in mine)
        memory = self._limits.memory_bytes // 2 - self._memory.used
        return 0 < free >= own and size <= memory

    def begin(self, call: Call, frame: bytes) -> None:
        """See :class:`Provider`."""
        self.frames[call.id] = frame
        self._memory.used += len(frame)

    def abandon(self, call: Call, **why: str) -> None:
        """See :class:`Provider`."""
        self._memory.used -= len(self.frames.pop(call.id))


Kept = Literal["calls", "networks", "registration", "subscriptions"]
"""The kinds of state that a session has besides messages."""


class Session(Provider):
    """The state of one connection."""

    def __init__(
        self,
        id_: str,
        limits: Limits,
        changes: Changes,
        memory: Memory,
        now: float,
        networks: tuple[str, ...],
    ) -> None:
        super().__init__(id_, networks)
        self.opened = now
        self.last_seen = now
        self.credentials: Raw | None = None
        """Session id and public key as JSON, sent to providers as ``kadi_caller``."""
        self.nonce: str | None = None
        self.nonce_expires = now
        self.asked_networks: tuple[str, ...] = ()
        self.registration = ABSENT
        """The parameters of its last registration, for other brokers."""
        self.announced = False
        """Whether other brokers have been told of its tools."""
        self.subscriptions: set[tuple[str, str | None]] = set()
        self.calling: dict[str | int, Call] = {}
        self.relaying: dict[str, str] = {}
        """Calls that it serves for callers of other brokers, and the ids of these."""
        self.outbox = Outbox(
            memory,
            max_frames=limits.outbox_frames,
            max_bytes=limits.outbox_bytes,
            reader=f"session {id_}",
        )
        self.buffered = 0
        """Bytes in the buffers of its connection, as last measured."""
        self._kept: dict[Kept, int] = {}
        self._limits = limits
        self._memory = memory
        self.listed = False
        """Whether the access rules name its agent as a provider: many callers wait for it."""
        self.closing: Closing | None = None
        self._changes = changes

    @property
    def load(self) -> int:
        """See :class:`Provider`."""
        return len(self.serving) + len(self.relaying)

    def has_room(self, size: int, caller: Session) -> bool:
        """See :class:`Provider`."""
        return self.outbox.has_room(size, caller.owner)

    @property
    def owner(self) -> Session | None:
        """Itself, whose calls must leave room to others, or ``None`` for a listed agent."""
        return None if self.listed else self

    @property
    def held(self) -> int:
        """Number of bytes held for it."""
        return self.outbox.size + self.buffered + sum(self._kept.values())

    @property
    def standing(self) -> int:
        """Number of bytes kept until it ends or changes them."""
        return sum(self._kept.values()) - self.kept("calls")

    def kept(self, what: Kept) -> int:
        """Return the number of bytes kept for it as ``what``."""
        return self._kept.get(what, 0)

    def keep(self, what: Kept, size: int) -> None:
        """Count ``size`` bytes as ``what``, instead of those of before."""
        self._memory.used += size - self.kept(what)
        self._kept[what] = size

    def make_room(self, what: Kept, size: int, sessions: Iterable[Session]) -> None:
        """Allow ``size`` bytes as ``what``, instead of those of before.

        What all ``sessions`` keep has an eighth of the memory. The one with the most gives way to
        smaller ones, unless its agent is listed as a provider.

        Raises:
            Refused: if this session itself would have the most.
        """
        grown = size - self.kept(what)
        if grown <= 0 or self.listed:
            return
        others = [each for each in sessions if each is not self]
        mine = self.standing + grown
        if mine + sum(each.standing for each in others) <= self._limits.memory_bytes // 8:
            return
        unlisted = (each for each in others if not each.listed and each.closing is None)
        largest = max(unlisted, key=lambda each: each.standing, default=self)
        if largest is self or largest.standing <= mine:
            raise Refused(
                f"the broker's memory for {what} is full, and most of it would be held for this"
                " session: register less, unsubscribe from some, or use wider patterns"
            )
        largest.close(
            CloseCode.TRY_AGAIN_LATER,
            f"memory for {what} is full, and most of it is held for this session",
        )

    def buffer(self, size: int) -> None:
        """Note the number of bytes in the buffers of its connection, until it begins to close."""
        if self.closing is None:
            self._memory.used += size - self.buffered
            self.buffered = size

    def release(self) -> None:
        """Drop all messages that are held for it."""
        self.outbox.clear()
        self._memory.used -= self.buffered
        self.buffered = 0

    def begin(self, call: Call, frame: bytes) -> None:
        """See :class:`Provider`."""
        self.send(frame, call.caller.owner)

    def abandon(self, call: Call, **why: str) -> None:
        """See :class:`Provider`."""
        self.cancel(call.id, why)

    def cancel(self, call: str, why: Mapping[str, str]) -> None:
        """Queue the cancellation of a call that it serves, for which there is always room.

        Otherwise callers could have a provider closed that does not read for a moment.
        """
        if self.closing is None:
            frame = notification("kadi.ability.cancel", {"requestId": call, **why})
            self.outbox.put_always(frame)
            self._changes.ready[self] = None

    def send(self, frame: bytes, owner: Session | None = None) -> None:
        """Queue a frame that must not be dropped; if there is no room, close the session.

        ``owner`` is the caller whose call it is, see :meth:`has_room`.
        """
        if self.closing is not None:
            return
        if self.outbox.put_reply(frame, owner):
            self._changes.ready[self] = None
        else:
            self.overflow()

    def overflow(self) -> None:
        """Close the session, which does not read fast enough; drop what is queued."""
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
    agents: tuple[str, ...]
    """Agents or sessions that the caller names, all of which the provider must be."""
    provider: Provider
    network: str
    """The first network of the caller on which that provider shows the tool."""
    started: float
    timeout: float
    direct: Raw
    """JSON-RPC id of the request if the caller wants a direct reply; else absent."""
    size: int
    """Bytes that it takes at most."""

    def completed(self, result: Raw) -> bytes:
        """Encode the frame that sends the result to the caller."""
        if len(self.direct):
            return response(self.direct, result)
        return answered(self.request_id, result)

    def fail(self, text: str) -> None:
        """Send an error to the caller."""
        params = {"requestId": self.request_id, "error": text}
        frame = (
            error_response(self.direct, text)
            if len(self.direct)
            else notification("kadi.ability.response", params)
        )
        self.caller.send(frame)


def answered(request_id: str | int, result: Any) -> bytes:
    """Encode the notification that sends the result of a call."""
    return notification("kadi.ability.response", {"requestId": request_id, "result": result})
