"""The broker without I/O.

Methods take frames and the time, and return the sessions that have something to send::

    router = Router(limits, wall_clock=time.time)
    session = router.connect(now)
    for ready in router.receive(session, text, now):
        ready.outbox.pop()    # send it; then, if ready.closing is set, close
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from typing import Any

from kadi_client.errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    AuthenticationError,
    ProtocolError,
)
from kadi_client.identity import agent_id, verify
from kadi_client.messages import ABSENT, Frame, Raw, decode_frame, encode, error_response, response
from kadi_client.params import read
from kadi_localnet.broker.access import Access, check_name
from kadi_localnet.broker.calls import FATES, CallCounts, Calls
from kadi_localnet.broker.cluster import Cluster
from kadi_localnet.broker.deadlines import Actions, Deadlines
from kadi_localnet.broker.events import Events
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import Memory, text_bytes
from kadi_localnet.broker.params import (
    TRUE,
    AbilityRequest,
    Authenticate,
    Cancel,
    Discovery,
    Hello,
    Publication,
    Register,
    Subscription,
    read_within,
)
from kadi_localnet.broker.registry import TOOL_BYTES, Registry
from kadi_localnet.broker.session import Changes, CloseCode, Refused, Session, answered

log = logging.getLogger(__name__)

_Handler = Callable[[Session, Any, Frame], Any]
"""Performs a method: takes its parameters and the frame that has them, and returns the result, or
``None`` if the response follows later."""
_OPEN = frozenset(
    f"kadi.session.{name}" for name in ("hello", "authenticate", "ping", "heartbeat", "goodbye")
)
"""Methods that need no authentication."""
_DISCOVERY = frozenset({"kadi.ability.list", "kadi.discover"})
_ID_BYTES = 6
_NONCE_BYTES = 32


class Router:
    """Sessions, tools, calls and events of one broker.

    ``now`` is the time in seconds of any monotonic clock, the same for all calls; ``wall_clock``
    returns Unix time for the timestamps of events. No method raises, whatever a peer sends.
    """

    def __init__(
        self, limits: Limits, *, wall_clock: Callable[[], float], access: Access | None = None
    ) -> None:
        self.limits = limits
        self._access = access or Access()
        self._wall_clock = wall_clock
        self._sessions: dict[str, Session] = {}
        self.memory = Memory()
        self._changes = Changes()
        self._deadlines: Actions = Deadlines()
        self.next_tick = self._deadlines.next
        """Returns the time at which to call :meth:`tick` next; ``None`` if it need not be."""
        self._registry = Registry(limits, self._access)
        self._events = Events(limits, self._sessions)
        self._calls = Calls(
            limits,
            self._access,
            self._registry,
            self._deadlines,
            self.memory,
            secrets.token_hex(_ID_BYTES),
        )
        self.cluster = Cluster(
            limits,
            self._sessions,
            self._registry,
            self._calls,
            self._events,
            self._deadlines,
            self.memory,
        )
        """The other brokers of the network; without a backplane there are none."""
        self._counts = dict.fromkeys(
            ("connected", "overflows", "silent", "bad_frames", "refused"), 0
        )
        self._methods: dict[str, tuple[Any, _Handler]] = {
            "kadi.session.hello": (Hello, self._hello),
            "kadi.session.authenticate": (Authenticate, self._authenticate),
            "kadi.session.ping": (Raw, lambda *_: "pong"),
            "kadi.session.heartbeat": (Raw, lambda *_: "pong"),
            "kadi.session.goodbye": (Raw, lambda *_: {"status": "goodbye"}),
            "kadi.agent.register": (Raw, self._register),
            "kadi.ability.request": (AbilityRequest, self._request),
            "kadi.ability.cancel": (Cancel, _plain(self._calls.cancel)),
            "kadi.ability.list": (Discovery, _plain(self._registry.describe)),
            "kadi.discover": (Discovery, _plain(self._registry.describe)),
            "kadi.event.subscribe": (Subscription, _plain(self._events.subscribe)),
            "kadi.event.unsubscribe": (Subscription, _plain(self._events.unsubscribe)),
            "kadi.event.publish": (Publication, self._publish),
        }
        """The type of the parameters of each method, and what performs it."""

    def connect(self, now: float) -> Session:
        """Open a session for a new connection."""
        networks, _ = self._access.admitted((), None, self.limits)
        id_ = secrets.token_hex(_ID_BYTES)
        session = Session(id_, self.limits, self._changes, self.memory, now, networks)
        self._sessions[session.id] = session
        self._counts["connected"] += 1
        self._deadlines.set((self._check_alive, session), self._alive_until(session))
        return session

    def receive(self, session: Session, data: str | bytes, now: float) -> AbstractSet[Session]:
        """Process one message of ``session``; ignore it if the session is closing.

        Returns:
            The sessions that have something to send or are to be closed after sending it, in the
            order in which they became ready: the provider of a call before its caller.
        """
        session.last_seen = now
        most = self.limits.unauthenticated_size
        if session.agent_id is None and len(data) > most:
            reason = f"a message before authentication has at most {most} characters"
            session.close(CloseCode.POLICY_VIOLATION, reason)
        if session.closing is None:
            try:
                frame = self._decoded(data)
            except ProtocolError as exc:
                self._counts["bad_frames"] += 1
                session.send(error_response(None, str(exc), code=exc.code))
            else:
                if frame.method is not None:
                    self._perform(session, frame, frame.method)
                elif not self.cluster.answer(session, frame, data):
                    self._calls.answer(session, frame, now)
        return self.settle()

    def disconnect(self, session: Session) -> AbstractSet[Session]:
        """Remove a session whose connection is closed; returns as :meth:`receive` does."""
        self._remove(session)
        session.release()
        return self.settle() - {session}

    def tick(self, now: float) -> AbstractSet[Session]:
        """Expire calls and close silent sessions; returns as :meth:`receive` does."""
        for act, subject in self._deadlines.due(now):
            act(subject, now)
        return self.settle()

    def stats(self) -> dict[str, int]:
        """Return counters since the start and current numbers; sizes in bytes."""
        counts = [asdict(each) for each in self._calls.by_tool.values()]
        return {
            "brokers": 1 + len(self.cluster),
            "sessions": len(self._sessions),
            "authenticated": sum(each.agent_id is not None for each in self._sessions.values()),
            "tools": self._registry.tool_count,
            "subscriptions": sum(len(session.subscriptions) for session in self._sessions.values()),
            "outstanding_calls": len(self._calls),
            "outbox_frames": sum(len(session.outbox) for session in self._sessions.values()),
            "memory_bytes": self.memory.used,
            "outbox_bytes": sum(session.outbox.size for session in self._sessions.values()),
            "events_published": self._events.published,
            "events_delivered": self._events.delivered,
            "events_dropped": self.memory.dropped,
            **{f"calls_{name}": sum(each[name] for each in counts) for name in FATES},
            "calls_discarded": self._calls.discarded,
            **self._counts,
        }

    def calls_by_tool(self) -> dict[str, CallCounts]:
        """Return the call counts of each tool since the start."""
        return dict(self._calls.by_tool)

    def _decoded(self, data: str | bytes) -> Frame:
        if isinstance(data, bytes):
            try:
                data.decode()
            except UnicodeDecodeError as exc:
                raise ProtocolError("frame is not valid UTF-8", code=PARSE_ERROR) from exc
        frame = decode_frame(data)
        members = (frame.params, frame.result, frame.error)
        size = len(data) - sum(map(len, members))
        most = self.limits.control_bytes
        if size > most:
            text = f"message of {size} bytes besides its payload, more than the {most} allowed"
            raise ProtocolError(text, code=INVALID_REQUEST)
        return frame

    def _perform(self, session: Session, frame: Frame, method: str) -> None:
        try:
            if session.agent_id is None and method not in _OPEN:
                raise Refused(
                    "not authenticated: send kadi.session.hello, then kadi.session.authenticate",
                    code=INVALID_REQUEST,
                )
            if method not in self._methods:
                raise Refused(f"unknown method {method!r}", code=METHOD_NOT_FOUND)
            kind, perform = self._methods[method]
            params = read_within(self.limits.control_bytes, kind, frame.params)
            result = perform(session, params, frame)
        except ProtocolError as exc:
            self._counts["refused"] += 1
            log.debug("session %s: %s refused: %s", session.id, method, exc)
            if frame.has_id:
                session.send(error_response(frame.id, str(exc), code=exc.code))
            if isinstance(exc, Refused) and exc.close is not None:
                session.close(exc.close, "refused")
        else:
            if frame.has_id and result is not None:
                session.send(response(frame.id, result))
            if method == "kadi.session.goodbye":
                session.close(CloseCode.NORMAL, "goodbye")

    def _hello(self, session: Session, params: Hello, _frame: Frame) -> Any:
        """Issue a nonce; an earlier unused nonce becomes invalid."""
        if session.agent_id is not None:
            raise Refused(
                "already authenticated: open another connection to authenticate again",
                code=INVALID_REQUEST,
            )
        if params.name:
            check_name("name", params.name, self.limits)
        if params.networks is not None:
            session.networks, _ = self._access.admitted(params.networks, None, self.limits)
            session.asked_networks = tuple(params.networks)
            session.keep("networks", sum(map(text_bytes, session.asked_networks)))
        session.display_name = params.name
        session.nonce = secrets.token_urlsafe(_NONCE_BYTES)
        session.nonce_expires = session.last_seen + self.limits.nonce_lifetime
        return {
            "nonce": session.nonce,
            "requiredSteps": ["kadi.session.authenticate"],
            "heartbeatInterval": round(self.limits.heartbeat) or 1,
            "directReplies": True,
        }

    def _authenticate(self, session: Session, params: Authenticate, _frame: Frame) -> Any:
        """Accept an identity if its private key signed the nonce, which is used up either way.

        The session joins the networks of its hello, as far as this agent may.
        """
        nonce, session.nonce = session.nonce, None
        expired = session.last_seen >= session.nonce_expires
        try:
            session.agent_id = _proven_agent(params, nonce, expired=expired)
        except AuthenticationError as exc:
            text = f"authentication failed: {exc}"
            raise Refused(text, close=CloseCode.POLICY_VIOLATION) from exc
        credentials = {"sessionId": session.id, "publicKey": params.public_key}
        session.credentials = Raw(encode(credentials))
        asked, session.asked_networks = session.asked_networks, ()
        session.networks, _ = self._access.admitted(asked, session.agent_id, self.limits)
        session.listed = self._access.names(session.agent_id)
        self._deadlines.set((self._check_alive, session), self._alive_until(session))
        log.info("session %s authenticated as agent %s", session.id, session.agent_id)
        return {"agentId": session.agent_id}

    def _register(self, session: Session, params: Raw, frame: Frame) -> Any:
        params = params.copy()  # what is kept of a slice would keep the whole frame
        register = read(params, Register)
        size = len(params) + TOOL_BYTES * len(register.tools or ())
        session.make_room("registration", size, self._sessions.values())
        result = self._registry.register(session, register)
        session.registration = params
        session.keep("registration", size)
        session.keep("networks", sum(map(text_bytes, session.networks)))
        log.info("session %s registered %d tools", session.id, len(session.tools))
        answer = response(frame.id, result) if frame.has_id else b""
        if not self.cluster.announce(session, answer, session.last_seen) and answer:
            session.send(answer)
        self._calls.resume(session)
        return None

    def _request(self, session: Session, params: AbilityRequest, frame: Frame) -> Any:
        direct = params.direct_reply == TRUE and frame.has_id
        if params.tool in _DISCOVERY:
            listing = self._registry.describe(
                session, read_within(self.limits.control_bytes, Discovery, params.input)
            )
            if direct or params.own_request_id is None:
                return listing
            request_id = self._calls.request_id(session, params, otherwise="")
            if frame.has_id:
                session.send(response(frame.id, _pending(request_id)))
            session.send(answered(request_id, listing))
            return None
        call = self._calls.start(session, params, direct=frame.id if direct else ABSENT)
        return None if direct else _pending(call.request_id)

    def _publish(self, session: Session, params: Publication, _frame: Frame) -> Any:
        self.cluster.publish(self._events.publish(session, params, self._wall_clock()))
        return {"status": "published"}

    def _check_alive(self, session: Session, now: float) -> None:
        alive_until = self._alive_until(session)
        if alive_until > now:
            self._deadlines.set((self._check_alive, session), alive_until)
            return
        self._counts["silent"] += 1
        session.outbox.clear()
        known = session.agent_id is not None
        reason = "silent for too long" if known else "not authenticated in time"
        session.close(CloseCode.POLICY_VIOLATION, reason)

    def _alive_until(self, session: Session) -> float:
        if session.agent_id is None:
            return session.opened + self.limits.nonce_lifetime
        return session.last_seen + self.limits.silence

    def shed(self) -> AbstractSet[Session]:
        """Close the session for which the most is held; returns as :meth:`receive` does."""
        self._close_fullest()
        return self.settle()

    def settle(self) -> AbstractSet[Session]:
        """Clean up closing sessions, which may close others in turn; return the ready ones."""
        ended = self._changes.ended
        if self.memory.used > self.limits.memory_bytes // 2:
            self._drop_events()
        if self.memory.used > self.limits.memory_bytes:
            self._close_fullest()
        while ended:
            session = ended.pop()
            if session.closing is not None and session.closing.code is CloseCode.TRY_AGAIN_LATER:
                self._counts["overflows"] += 1
            self._remove(session)
        ready, self._changes.ready = self._changes.ready, {}
        return ready.keys()

    def may_begin(self, session: Session) -> bool:
        """Return whether a session may begin a message while half of the memory is used.

        It may not if it holds more than its share of that half, unless the access rules name its
        agent as a provider: many callers wait for those.
        """
        if session.listed:
            return True
        return session.held * len(self._sessions) <= self.limits.memory_bytes // 2

    def _drop_events(self) -> None:
        """Drop events while more than half of the memory is used, those of slow readers first."""
        most = self.limits.memory_bytes // 2
        unread = {each.outbox: each.buffered for each in self._sessions.values()}
        unread |= dict.fromkeys(self.cluster.outboxes, 0)
        waiting = [outbox for outbox in unread if outbox.event_bytes]
        for outbox in sorted(waiting, key=lambda each: -each.event_bytes - unread[each]):
            if self.memory.used <= most:
                return
            outbox.drop_events()

    def _close_fullest(self) -> None:
        """Close the session for which the most is held, of those that the rules do not name."""
        session = max(
            (each for each in self._sessions.values() if each.held),
            key=lambda each: (not each.listed, each.held),
            default=None,
        )
        if session is None:
            return
        text = "%d bytes are held for sessions: session %s of agent %s is closed, with %d of them"
        log.warning(text, self.memory.used, session.id, session.agent_id, session.held)
        session.release()
        session.close(
            CloseCode.TRY_AGAIN_LATER, "memory is full, and most of it is held for this session"
        )

    def _remove(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._deadlines.discard((self._check_alive, session))
        self._events.remove(session)
        self._calls.remove(session)
        self.cluster.remove(session)
        session.registration = ABSENT
        session.keep("registration", 0)
        session.keep("networks", 0)


def _proven_agent(params: Authenticate, nonce: str | None, *, expired: bool) -> str:
    """Return the id of the agent whose private key signed the nonce.

    Raises:
        AuthenticationError: if the nonce is unknown or expired, or the signature is invalid.
    """
    if nonce is None:
        raise AuthenticationError(
            "no valid nonce, each allows one attempt: send kadi.session.hello"
        )
    if params.nonce is not None and params.nonce != nonce:
        raise AuthenticationError("the nonce was not issued to this session")
    if expired:
        raise AuthenticationError("the nonce has expired: send kadi.session.hello")
    verify(params.public_key, params.signature, nonce)
    return agent_id(params.public_key)


def _plain(perform: Callable[[Session, Any], Any]) -> _Handler:
    return lambda session, params, _frame: perform(session, params)


def _pending(request_id: str | int) -> dict[str, Any]:
    return {"status": "pending", "requestId": request_id}
