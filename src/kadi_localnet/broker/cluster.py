"""Several brokers that are one network, without I/O.

Every broker keeps its own sessions and the calls of its own callers. Of the others it knows the
sessions that offer tools, so that an unknown tool is refused and a list is answered at once::

    caller -- broker A ==Start=========> broker B -- provider
                       <======Answer====

A announces a registration to all others and answers it when they have applied it. It sends an event
to all others, and each delivers it to its own subscribers: no session receives it twice.

Messages from one broker to another are numbered, and large ones are divided. A broker that misses a
number, or hears nothing for ``Limits.lease`` seconds, forgets the other one: calls there end as if
the provider had left, and calls from there are cancelled. A broker that others have forgotten, or
that has lost the backplane, joins again under a new id. State is therefore never repaired, only
built anew.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from kadi_client.errors import ProtocolError
from kadi_client.messages import Frame, Raw, decode_frame, error_response
from kadi_client.params import CALLER_LOST, read
from kadi_localnet.broker import cluster_messages as wire
from kadi_localnet.broker.calls import Calls, text_of
from kadi_localnet.broker.deadlines import Actions
from kadi_localnet.broker.events import Events
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import Memory, Outbox
from kadi_localnet.broker.params import Register
from kadi_localnet.broker.registry import Registry
from kadi_localnet.broker.session import Call, Provider, Session

log = logging.getLogger(__name__)

EVERYONE = "all"
"""The address of all brokers."""

PIECE_BYTES = 512 * 1024
"""Maximum size of the body of a message; NATS takes 1 MiB unless configured otherwise."""

_BARRIER_SECONDS = 2.0
"""Time in which the other brokers must apply a registration; it is answered then in any case."""


class _Broker:
    """Another broker."""

    def __init__(self, id_: str, limits: Limits, memory: Memory) -> None:
        self.id = id_
        self.sessions: dict[str, RemoteSession] = {}
        self.left: dict[str, RemoteSession] = {}
        """Sessions that have ended, with calls that the broker will return."""
        self.relayed: dict[str, Session] = {}
        """Calls of its callers, and the sessions here that serve them."""
        self.outbox = Outbox(
            memory,
            max_frames=limits.outbox_frames,
            max_bytes=limits.outbox_bytes,
            reader=f"broker {id_}",
        )
        self.rest = b""
        """The unsent part of a divided message."""
        self.sent = 0
        self.received = 0
        self.begun = bytearray()

    def send(self, body: wire.Body) -> None:
        """Queue a message that must not be dropped; see :attr:`Cluster.behind`."""
        self.outbox.put_always(wire.encode(body))

    def report(self, loads: Mapping[str, int]) -> None:
        """Note the calls in progress of its sessions; those not named have none."""
        for id_, session in self.sessions.items():
            session.report(loads.get(id_, 0))

    def next_piece(self, sender: str) -> bytes | None:
        """Return the next message to send; ``None`` if there is none."""
        body = self.rest or self.outbox.pop()
        if body is None:
            return None
        self.rest = body[PIECE_BYTES:]
        piece = wire.Piece(sender, self.sent, not self.rest, body[:PIECE_BYTES])
        self.sent += 1
        return wire.encode(piece)


class RemoteSession(Provider):
    """A session of another broker."""

    def __init__(self, offer: wire.Offer, broker: _Broker) -> None:
        super().__init__(offer.session, offer.networks)
        self.agent_id = offer.agent_id
        self._broker = broker
        self._elsewhere = 0

    @property
    def load(self) -> int:
        """See :class:`Provider`."""
        return len(self.serving) + self._elsewhere

    def report(self, load: int) -> None:
        """Note the number of its calls in progress, those of this broker's callers included."""
        self._elsewhere = max(0, load - len(self.serving))

    def has_room(self, size: int, caller: Session) -> bool:
        """See :class:`Provider`."""
        return self._broker.outbox.has_room(size)

    def begin(self, call: Call, frame: bytes) -> None:
        """See :class:`Provider`."""
        self._broker.send(wire.Start(self.id, call.id, call.tool, frame))

    def abandon(self, call: Call, **why: str) -> None:
        """See :class:`Provider`."""
        self._broker.send(wire.PeerCancel(call.id, why))


@dataclass(slots=True)
class _Registration:
    """A registration that is answered when the brokers in ``waiting`` have applied it."""

    session: Session
    answer: bytes
    waiting: set[str]


@dataclass(slots=True, eq=False)
class Cluster:
    """The other brokers, as one of them sees them.

    Args:
        limits: The limits of this broker.
        sessions: Its sessions by id.
        registry: Its registry, which also holds the tools of remote sessions.
        calls: The calls of its callers.
        events: The subscriptions of its sessions.
        deadlines: The deadlines of this broker.
        memory: Counts what is queued for other brokers.
    """

    limits: Limits
    sessions: Mapping[str, Session]
    registry: Registry
    calls: Calls
    events: Events
    deadlines: Actions
    memory: Memory
    forgotten: bool = False
    """Whether others have forgotten this broker, or will have: it must join again."""
    _id: str = ""
    _brokers: dict[str, _Broker] = field(default_factory=dict)
    _controls: deque[tuple[str, bytes]] = field(default_factory=deque)
    _next_beat: float = 0.0
    _registrations: dict[int, _Registration] = field(default_factory=dict)
    _serial: int = 0

    def __len__(self) -> int:
        return len(self._brokers)

    @property
    def outboxes(self) -> list[Outbox]:
        """The messages queued for other brokers."""
        return [broker.outbox for broker in self._brokers.values()]

    @property
    def behind(self) -> bool:
        """True while much is queued for a broker.

        Who sends a large message, or any to another broker, must then wait.
        """
        return any(outbox.crowded for outbox in self.outboxes)

    @property
    def queued(self) -> int:
        """Number of messages that were ever queued for the brokers that are known."""
        return sum(each.outbox.queued for each in self._brokers.values())

    # --- joining and leaving -------------------------------------------------------------------

    def join(self, id_: str, formerly: str, now: float) -> None:
        """Begin to exchange messages under an id that was never used before."""
        self._id = id_
        self.forgotten = False
        self._control(EVERYONE, wire.PeerHello(id_, formerly))
        self._beat_again(now)

    def say_goodbye(self) -> None:
        """Tell the others that this broker stops."""
        self._control(EVERYONE, wire.Leave(self._id))

    def leave(self) -> None:
        """Forget all others; nothing is sent or expected until the next :meth:`join`."""
        for broker in list(self._brokers.values()):
            self._forget(broker, "the backplane is left")
        self._id = ""
        self._controls.clear()
        self.deadlines.discard((self._beat, None))

    def lose(self, id_: str) -> None:
        """Forget a broker that cannot be reached."""
        if id_ in self._brokers:
            self._forget(self._brokers[id_], "it cannot be reached")

    # --- what the router tells -----------------------------------------------------------------

    def announce(self, session: Session, answer: bytes, now: float) -> bool:
        """Announce the tools of a session; ``answer`` is sent to it when all know them.

        Returns:
            False if nobody needs to know, so that the registration can be answered at once.
        """
        known, session.announced = session.announced, bool(session.tools)
        if not self._brokers or not (session.tools or known):
            return False
        session.announced = True
        self._serial += 1
        for broker in self._brokers.values():
            broker.send(wire.Announcement(self._serial, _offer(session)))
        self._registrations[self._serial] = _Registration(session, answer, set(self._brokers))
        self.deadlines.set((self._confirm, self._serial), now + _BARRIER_SECONDS)
        return True

    def remove(self, session: Session) -> None:
        """Tell the others that a session has ended; they end its calls."""
        lost: dict[str, list[str]] = {}
        for call, id_ in session.relaying.items():
            lost.setdefault(id_, []).append(call)
        session.relaying.clear()
        for id_, broker in self._brokers.items():
            calls = lost.get(id_, [])
            for call in calls:
                broker.relayed.pop(call, None)
            if session.announced:
                broker.send(wire.Gone(session.id, calls))

    def answer(self, session: Session, frame: Frame, data: bytes | str) -> bool:
        """Pass on the answer to a call of another broker; return False if it is none of them."""
        if not session.relaying:
            return False
        call = text_of(frame.id)
        id_ = session.relaying.pop(call, None)
        if id_ is None:
            return False
        broker = self._brokers[id_]
        del broker.relayed[call]
        text = data.encode() if isinstance(data, str) else data
        broker.send(wire.Answer(session.id, text, session.load))
        return True

    def publish(self, event: wire.Event) -> None:
        """Send an event to all other brokers; each may drop it if it is slow."""
        if not self._brokers:
            return
        body = wire.encode(event)
        for broker in self._brokers.values():
            broker.outbox.put_event(body)

    # --- messages ------------------------------------------------------------------------------

    def pop(self) -> tuple[str, bytes] | None:
        """Remove and return the next message, after the id of its receiver."""
        if self._controls:
            return self._controls.popleft()
        for broker in self._brokers.values():
            piece = broker.next_piece(self._id)
            if piece is not None:
                return broker.id, piece
        return None

    def receive(self, data: bytes, now: float) -> None:
        """Process a message; a malformed one is ignored."""
        try:
            message = wire.controls.decode(data)
        except msgspec.DecodeError as exc:
            log.warning("a message of the backplane is not of a broker: %s", exc)
            return
        if isinstance(message, wire.Stranger):
            self.forgotten = True
        elif self._id and message.sender != self._id:
            if message.sender in self._brokers:
                self._renew(message.sender, now)
            if isinstance(message, wire.Probe | wire.Piece):
                self._take(message, now)
            else:
                self._hear(message, now)

    def _beat(self, _subject: None, now: float) -> None:
        """Tell the others that this broker is there.

        If this is called so late that they may have forgotten it, it must join again instead: their
        messages may still be unread.
        """
        if now > self._next_beat + self.limits.lease / 2:
            self.forgotten = True
            return
        self._beat_again(now)
        self._control(EVERYONE, wire.Beat(self._id, list(self._brokers)))
        loads = {id_: each.load for id_, each in self.sessions.items() if each.load}
        probe = wire.Probe(self._id, loads)
        for id_, broker in self._brokers.items():
            if broker.sent:  # otherwise it does not know this broker yet
                self._control(id_, probe)

    def _beat_again(self, now: float) -> None:
        self._next_beat = now + self.limits.beat
        self.deadlines.set((self._beat, None), self._next_beat)

    def _renew(self, id_: str, now: float) -> None:
        """Note a sign of life of another broker."""
        self.deadlines.set((self._miss, id_), now + self.limits.lease)

    def _miss(self, id_: str, _now: float) -> None:
        self._forget(self._brokers[id_], f"silent for {self.limits.lease:g} s")

    def _hear(self, message: wire.PeerHello | wire.Beat | wire.Leave, now: float) -> None:
        """Process a message to all."""
        unknown = message.sender not in self._brokers
        match message:
            case wire.PeerHello(sender, formerly):
                self.lose(formerly)
                if unknown:
                    self._meet(sender, now)
            case wire.Beat(sender, known) if unknown and self._id not in known:
                self._meet(sender, now)
            case wire.Leave(sender):
                self.lose(sender)

    def _take(self, message: wire.Probe | wire.Piece, now: float) -> None:
        """Process a message to this broker."""
        broker = self._brokers.get(message.sender)
        match message:
            case wire.Piece(sender, 0) if broker is None:
                self._assemble(self._meet(sender, now), message, now)
            case wire.Piece(_, number) if broker is not None and broker.received == number:
                self._assemble(broker, message, now)
            case wire.Probe(_, loads) if broker is not None:
                broker.report(loads)
            case wire.Probe(sender) | wire.Piece(sender):
                self.lose(sender)
                self._control(sender, wire.Stranger())

    def _assemble(self, broker: _Broker, piece: wire.Piece, now: float) -> None:
        broker.received += 1
        if not piece.last:
            broker.begun += piece.body
            return
        body = bytes(broker.begun + piece.body) if broker.begun else piece.body
        broker.begun.clear()
        try:
            message = wire.bodies.decode(body)
        except msgspec.DecodeError as exc:
            log.error("broker %s speaks another version: %s", broker.id, exc)
            return
        self._process(broker, message, now)

    def _process(self, broker: _Broker, message: wire.Body, now: float) -> None:
        match message:
            case wire.Welcome(offers):
                for offer in offers:
                    self._apply(broker, offer)
            case wire.Announcement(number, offer):
                self._apply(broker, offer)
                broker.send(wire.Applied(number))
            case wire.Applied(number):
                self._applied(number, broker.id)
            case wire.Gone(id_, lost):
                self._left(broker, id_, lost)
            case wire.Event():
                self.events.deliver(message)
            case _:
                self._relay(broker, message, now)

    def _left(self, broker: _Broker, id_: str, lost: Collection[str]) -> RemoteSession | None:
        """Remove a session that has ended; the calls that it did not receive will be returned."""
        session = broker.sessions.pop(id_, None) or broker.left.get(id_)
        if session is not None:
            self.calls.remove_provider(session, lost)
            broker.left[id_] = session
        broker.left = {each.id: each for each in broker.left.values() if each.serving}
        return session

    def _relay(self, broker: _Broker, message: wire.Body, now: float) -> None:
        """Process a message about a call."""
        match message:
            case wire.Start():
                self._start(broker, message)
            case wire.Return(id_, call, frame):
                ended = self._left(broker, id_, ())
                if ended is not None and call in ended.serving:
                    self.calls.forward_again(ended.serving[call], frame)
            case wire.PeerCancel(call, why):
                served = broker.relayed.pop(call, None)
                if served is not None:
                    del served.relaying[call]
                    served.cancel(call, why)
            case wire.Answer(id_, frame, load):
                session = broker.sessions.get(id_)
                if session is not None:
                    self.calls.answer(session, decode_frame(frame), now)
                    session.report(load)

    # --- other brokers -------------------------------------------------------------------------

    def _meet(self, id_: str, now: float) -> _Broker:
        broker = self._brokers[id_] = _Broker(id_, self.limits, self.memory)
        self._renew(id_, now)
        offering = [session for session in self.sessions.values() if session.tools]
        for session in offering:
            session.announced = True
        broker.send(wire.Welcome(list(map(_offer, offering))))
        log.info("broker %s has joined", id_)
        return broker

    def _forget(self, broker: _Broker, why: str) -> None:
        log.info("broker %s is gone: %s", broker.id, why)
        del self._brokers[broker.id]
        broker.outbox.clear()
        self.deadlines.discard((self._miss, broker.id))
        for session in (*broker.sessions.values(), *broker.left.values()):
            self.calls.remove_provider(session)
        for call, served in broker.relayed.items():
            served.relaying.pop(call, None)
            served.cancel(call, {"reason": CALLER_LOST})
        for number in list(self._registrations):
            self._applied(number, broker.id)

    def _apply(self, broker: _Broker, offer: wire.Offer) -> None:
        """Enter the tools of a remote session; the rules of this broker hold for them, too."""
        session = broker.sessions.get(offer.session)
        if session is None:
            session = broker.sessions[offer.session] = RemoteSession(offer, broker)
        session.display_name = offer.display_name
        try:
            params = read(Raw(offer.params), Register)
            params.networks = list(offer.networks)
            self.registry.register(session, params)
            self.calls.resume(session)
        except ProtocolError as exc:
            text = "tools of agent %s at broker %s are not listed here: %s"
            log.warning(text, offer.agent_id, broker.id, exc)

    def _applied(self, number: int, id_: str) -> None:
        registration = self._registrations.get(number)
        if registration is None:
            return
        registration.waiting.discard(id_)
        if not registration.waiting:
            self.deadlines.discard((self._confirm, number))
            self._confirm(number)

    def _confirm(self, number: int, _now: float = 0.0) -> None:
        """Answer a registration."""
        registration = self._registrations.pop(number)
        session = registration.session
        if registration.answer and session.id in self.sessions:
            session.send(registration.answer)

    def _start(self, broker: _Broker, start: wire.Start) -> None:
        session = self.sessions.get(start.session)
        if session is None or session.closing is not None:
            broker.send(wire.Return(start.session, start.call, start.frame))
            return
        if not session.outbox.has_room(len(start.frame)):
            problem = f"all providers of {start.tool!r} are overloaded: try again in a moment"
            broker.send(wire.Answer(start.session, error_response(start.call, problem), 0))
            return
        session.relaying[start.call] = broker.id
        broker.relayed[start.call] = session
        session.send(start.frame)

    def _control(self, to: str, message: wire.Control) -> None:
        self._controls.append((to, wire.encode(message)))


def _offer(session: Session) -> wire.Offer:
    """Return the tools of a session for other brokers; it may have none any more."""
    params = bytes(session.registration) if session.tools else b"{}"
    agent = session.agent_id or ""
    return wire.Offer(session.id, agent, session.display_name, session.networks, params)
