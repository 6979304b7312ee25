"""A bounded queue of outgoing frames, and the memory that all sessions share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable
from dataclasses import KW_ONLY, dataclass, field

log = logging.getLogger(__name__)


def text_bytes(text: str) -> int:
    """Return the bytes that a text takes at most, with its encoded form, which is kept with it."""
    return 64 + (len(text) if text.isascii() else 4 * len(text) + len(text.encode()))


class Memory:
    """The bytes that a broker holds for its sessions and for other brokers."""

    __slots__ = ("dropped", "used")

    def __init__(self) -> None:
        self.used = 0
        self.dropped = 0
        """Number of events dropped, by all outboxes."""


@dataclass(slots=True, eq=False)
class Outbox:
    """The outgoing frames of one session, first in, first out.

    When there is no room, the oldest events are dropped and counted in ``dropped``. Replies are
    never dropped; if there is still no room for a reply, it is refused and the session must be
    closed. While no reply is queued, a frame of any size is accepted. Their bytes are counted in
    ``memory``, as are the events dropped. The first drop is logged with the name of the ``reader``.

    A reply may have an owner, on whose behalf it is sent. An owner must leave as much room to
    others as it takes, and large frames a quarter: so a few owners cannot fill it.
    """

    memory: Memory
    _: KW_ONLY
    max_frames: int
    max_bytes: int
    reader: str = "a session"
    event_bytes: int = 0
    """Total size of the queued events."""
    dropped: int = 0
    queued: int = 0
    """Number of frames that were ever queued."""
    _replies: deque[tuple[int, bytes, Hashable]] = field(default_factory=deque)
    _owned: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """Number and size of the replies of each owner that are queued."""
    _events: deque[tuple[int, bytes]] = field(default_factory=deque)
    _reply_bytes: int = 0

    def has_room(self, size: int, owner: Hashable = None) -> bool:
        """Return True if a frame of ``size`` bytes fits, if necessary by dropping all events."""
        if not self._replies:
            return True
        frames, owned = self._owned.get(owner, (0, 0))
        free = self.max_bytes - self._reply_bytes - size
        if owner is not None and size > self.max_bytes // self.max_frames:
            free -= self.max_bytes // 4
        return 0 < self.max_frames - len(self._replies) >= frames and owned <= free

    def put_reply(self, frame: bytes, owner: Hashable = None) -> bool:
        """Queue a frame that must not be dropped; return False if there is no room for it.

        That of an owner has room if :meth:`has_room` was asked before.
        """
        if owner is None and not self.has_room(len(frame)):
            return False
        self._make_room(len(frame))
        self.put_always(frame, owner)
        return True

    def put_always(self, frame: bytes, owner: Hashable = None) -> None:
        """Queue a reply, whether there is room or not."""
        self.queued += 1
        self._replies.append((self.queued, frame, owner))
        if owner is not None:
            frames, owned = self._owned.get(owner, (0, 0))
            self._owned[owner] = frames + 1, owned + len(frame)
        self._reply_bytes += len(frame)
        self.memory.used += len(frame)

    @property
    def crowded(self) -> bool:
        """True if a quarter of it is full."""
        return 4 * len(self._replies) > self.max_frames or 4 * self._reply_bytes > self.max_bytes

    def put_event(self, frame: bytes) -> None:
        """Queue an event, dropping older events for it; without room, drop the event itself."""
        if not self.has_room(len(frame)):
            self._count_drop()
            return
        self._make_room(len(frame))
        self.queued += 1
        self._events.append((self.queued, frame))
        self.event_bytes += len(frame)
        self.memory.used += len(frame)

    def pop(self) -> bytes | None:
        """Remove and return the oldest frame; ``None`` if the queue is empty."""
        if self._events and (not self._replies or self._events[0][0] < self._replies[0][0]):
            return self._pop_event()
        if not self._replies:
            return None
        _, frame, owner = self._replies.popleft()
        if owner is not None:
            frames, owned = self._owned.pop(owner)
            if frames > 1:
                self._owned[owner] = frames - 1, owned - len(frame)
        self._reply_bytes -= len(frame)
        self.memory.used -= len(frame)
        return frame

    def drop_events(self) -> None:
        """Drop all events."""
        while self._events:
            self._pop_event()
            self._count_drop()

    def clear(self) -> None:
        """Remove all frames."""
        self.memory.used -= self.size
        self._replies.clear()
        self._owned.clear()
        self._events.clear()
        self._reply_bytes = self.event_bytes = 0

    def __len__(self) -> int:
        return len(self._replies) + len(self._events)

    @property
    def size(self) -> int:
        """Total size of the queued frames in bytes."""
        return self._reply_bytes + self.event_bytes

    def _pop_event(self) -> bytes:
        frame = self._events.popleft()[1]
        self.event_bytes -= len(frame)
        self.memory.used -= len(frame)
        return frame

    def _make_room(self, size: int) -> None:
        """Drop the oldest events until a frame of ``size`` bytes fits, or none is left."""
        while self._events and (len(self) >= self.max_frames or self.size + size > self.max_bytes):
            self._pop_event()
            self._count_drop()

    def _count_drop(self) -> None:
        if not self.dropped:
            log.warning("%s does not read fast enough: events to it are dropped", self.reader)
        self.dropped += 1
        self.memory.dropped += 1
