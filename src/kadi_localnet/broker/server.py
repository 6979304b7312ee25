"""The WebSocket server of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Origin

from kadi_client.addresses import SOCKET_PATH, is_loopback, local_url
from kadi_client.backoff import Backoff
from kadi_client.messages import encode
from kadi_client.sockets import WRITE_BUFFER
from kadi_localnet.broker.access import Access
from kadi_localnet.broker.backplane import Backplane, BackplaneLost, Send
from kadi_localnet.broker.calls import CallCounts
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.peer import Peer, Turns
from kadi_localnet.broker.router import Router
from kadi_localnet.broker.session import Session

log = logging.getLogger(__name__)

DEFAULT_PORT = 8080
_JOIN_SECONDS = 10.0
"""Time in which the server of the backplane must appear at the start."""
_MEETING_SECONDS = 0.5
"""Time that the other brokers have to introduce themselves at the start."""
_LONGEST_PAUSE = 2.0
"""Longest pause between two attempts to join the backplane, in seconds."""
_ALARM_SECONDS = 0.05
"""Interval at which memory is measured while there is an alarm."""
_ID_BYTES = 6
_TURN_BYTES = 2 * 1024 * 1024
"""Bytes that are sent in one turn of the loop; the rest of an event for many follows in others."""
_SENDING_BYTES = 16 * 1024
"""Bytes as long as whose sending it takes to send anything."""
_MOST_AFTER_END = 1024 * 1024
"""Bytes of a message that may arrive in part after the end of a session."""
_OTHER_FILES = 64
"""Files that the process needs besides its connections."""
SOCKET_PATHS = (SOCKET_PATH, "/")
HEALTH_PATH = "/health"


class Broker:
    """A running broker, created by :func:`serve_broker`."""

    def __init__(self, limits: Limits, access: Access | None = None) -> None:
        self._limits = limits
        self._router = Router(limits, wall_clock=time.time, access=access)
        self._loop = asyncio.get_running_loop()
        self._peers: dict[Session, Peer] = {}
        self._sockets: dict[Peer, Session | None] = {}
        """All connections, the oldest first; without a session those that are being opened."""
        self._turns = Turns()
        self._most_sockets = _most_connections(limits.connections)
        self._holds = False
        """Whether connections are held until the other brokers have taken their messages."""
        self._unsent: dict[Session, None] = {}
        """Sessions whose output is sent in later turns of the loop."""
        self._outgoing = asyncio.Event()
        """Set if there may be messages for other brokers, or the backplane is to be left."""
        self._backplane_lost = False
        self._stopping = False
        self._alarm: asyncio.TimerHandle | None = None
        self._timer: tuple[float, asyncio.Handle] | None = None
        # The time is stored next to the handle, since uvloop's handles do not always expose it.
        self.url = ""
        """The address that clients connect to."""

    def stats(self) -> dict[str, int]:
        """Return counters since the start and current numbers; sizes in bytes."""
        return {"connections": len(self._peers), **self._router.stats()}

    def calls_by_tool(self) -> dict[str, CallCounts]:
        """Return the call counts of each tool since the start."""
        return self._router.calls_by_tool()

    async def _open(self, host: str, port: int, origins: Sequence[str]) -> Server:
        server = await serve(
            self._serve_connection,
            host,
            port,
            create_connection=cast(type[ServerConnection], self._create_socket),
            origins=[None, *map(Origin, origins)],
            compression=None,
            process_request=self._process_request,
            server_header=None,
            ping_interval=None,
            open_timeout=self._limits.handshake_timeout,
            close_timeout=self._limits.handshake_timeout,
            max_size=self._limits.unauthenticated_size,
            write_limit=WRITE_BUFFER,
            logger=log.getChild("websocket"),
        )
        self.url = local_url(host, next(iter(server.sockets)).getsockname()[1])
        log.info("broker is listening at %s", self.url)
        return server

    async def _close(self, server: Server) -> None:
        """Close all connections with 1001; abort those that do not close in time."""
        server.close()
        closed = asyncio.ensure_future(server.wait_closed())
        try:
            await asyncio.wait([closed], timeout=self._limits.handshake_timeout)
        finally:
            for peer in list(self._peers.values()):
                peer.transport.abort()
        await closed
        if self._timer is not None:
            self._timer[1].cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        log.info("broker at %s is closed", self.url)

    # The Inbound interface of backplane.py

    def received(self, message: bytes) -> None:
        """Process a message of another broker."""
        self._router.cluster.receive(message, self._loop.time())
        self._apply(self._router.settle())

    def unreachable(self, broker: str) -> None:
        """Forget another broker."""
        self._router.cluster.lose(broker)
        self._apply(self._router.settle())

    def lost(self) -> None:
        """Note that the backplane must be joined again."""
        self._backplane_lost = True
        self._outgoing.set()

    async def _exchange(self, backplane: Backplane, joined: asyncio.Future[None]) -> None:
        """Exchange messages with the other brokers until this one stops.

        The first attempts to join may last for ``_JOIN_SECONDS``; ``joined`` gets the result.
        """
        cluster, clock = self._router.cluster, self._loop.time
        backoff, give_up, id_ = Backoff(cap=_LONGEST_PAUSE), clock() + _JOIN_SECONDS, ""
        while not self._stopping:
            formerly, id_, began = id_, secrets.token_hex(_ID_BYTES), clock()
            self._backplane_lost = False
            try:
                async with backplane.join(id_, self) as send:
                    cluster.join(id_, formerly, clock())
                    self._arm()
                    if not joined.done():
                        joined.set_result(None)
                    await self._send_all(send)
            except BackplaneLost as exc:
                if not joined.done() and clock() >= give_up:
                    joined.set_exception(exc)
                    return
                log.warning("%s; only sessions of this broker are served", exc)
            finally:
                cluster.leave()
                self._let_go_on()
                self._apply(self._router.settle())
            if not self._stopping:
                await asyncio.sleep(backoff.delay(clock() - began))

    async def _send_all(self, send: Send) -> None:
        """Send messages until the backplane is to be left."""
        cluster = self._router.cluster
        while True:
            self._outgoing.clear()
            while (message := cluster.pop()) is not None:
                await send(*message)
                if self._holds and not cluster.behind:
                    self._let_go_on()
            if self._backplane_lost:
                raise BackplaneLost("the connection to the backplane is lost")
            if cluster.forgotten:
                log.warning("other brokers have forgotten this one, which joins again")
                return
            if self._stopping:
                cluster.say_goodbye()
                while (message := cluster.pop()) is not None:
                    await send(*message)
                return
            await self._outgoing.wait()

    @contextlib.asynccontextmanager
    async def _joined(self, backplane: Backplane) -> AsyncIterator[None]:
        joined: asyncio.Future[None] = self._loop.create_future()
        exchange = asyncio.create_task(self._exchange(backplane, joined), name="broker-exchange")
        try:
            await asyncio.wait([joined, exchange], return_when=asyncio.FIRST_COMPLETED)
            if exchange.done():
                await exchange
            await joined
            await asyncio.sleep(_MEETING_SECONDS)
            yield
        finally:
            self._stopping = True
            self._outgoing.set()
            await asyncio.wait([exchange], timeout=self._limits.handshake_timeout)
            exchange.cancel()
            await asyncio.wait([exchange])

    async def _serve_connection(self, connection: ServerConnection) -> None:
        peer = cast(Peer, connection)
        peer.session = session = self._router.connect(self._loop.time())
        self._peers[session] = peer
        self._sockets[peer] = session
        peer.arrived = partial(self._watch, peer)
        log.info("session %s connected", session.id)
        self._arm()
        writer = asyncio.create_task(peer.write(), name=f"broker-write-{session.id}")
        try:
            await peer.deliver(partial(self._take, peer))
        except ConnectionClosed as exc:
            log.info("session %s disconnected: %s", session.id, exc)
        finally:
            waiting, peer.waiting = peer.waiting, []
            for message in waiting:
                self._process(peer, message)
            del self._peers[session]
            if peer.cut is not None:
                peer.cut.cancel()
            self._apply(self._router.disconnect(session))
            writer.cancel()
            await asyncio.wait([writer])

    def _create_socket(self, *args: Any, **options: Any) -> Peer:
        """Create a connection; if there are too many, another one is cut.

        That is the oldest that has not authenticated, or that of the agent with the most.
        """
        if len(self._sockets) >= self._most_sockets:
            agents = Counter(each.agent_id for each in self._sockets.values() if each)
            cut = max(
                (socket for socket, each in self._sockets.items() if not (each and each.listed)),
                key=lambda socket: _claim(self._sockets[socket], agents),
                default=None,
            )
            if cut is not None:
                log.warning("there are %d connections: one is cut", len(self._sockets))
                cut.transport.abort()
                self._sockets.pop(cut)
        created = Peer(*args, turns=self._turns, **options)
        created.ended = lambda: self._sockets.pop(created, None)
        self._sockets[created] = None
        return created

    def _let_go_on(self) -> None:
        """Read the connections again that were held up for other brokers."""
        self._holds = False
        for peer in [each for each in self._peers.values() if each.held]:
            peer.held = False
            waiting, peer.waiting = peer.waiting, []
            for message in waiting:
                self._take(peer, message)
            peer.go_on()

    def _take(self, peer: Peer, message: bytes) -> None:
        """Process a message; a large one waits while other brokers are behind with theirs."""
        large = len(message) > WRITE_BUFFER
        if peer.waiting or (large and self._router.cluster.behind):
            peer.waiting.append(message)
            peer.held = self._holds = True
        if large:
            peer.measure()  # it is no longer in the buffer of the connection
        if not peer.waiting:
            self._process(peer, message)

    def _process(self, peer: Peer, message: bytes) -> None:
        session, cluster = peer.session, self._router.cluster
        queued = cluster.queued if cluster else 0
        ready = self._router.receive(session, message, self._loop.time())
        if cluster and cluster.queued > queued and cluster.behind:
            peer.held = self._holds = True
        if session.agent_id is not None:
            peer.protocol.max_message_size = self._limits.max_message_bytes
        self._apply(ready)

    def _apply(self, ready: Iterable[Session]) -> None:
        """Send the output of these sessions; abort closing ones that do not close in time.

        Those that are left after a turn of the loop follow in others.
        """
        rest, sent = iter(ready), 0
        for session in rest:
            size = session.outbox.size
            if (peer := self._peers.get(session)) is not None:
                self._send(peer)
            sent += size - session.outbox.size + _SENDING_BYTES
            if sent >= _TURN_BYTES:
                break
        if late := dict.fromkeys(rest):
            if not self._unsent:
                self._loop.call_soon(self._send_late)
            self._unsent.update(late)
        self._outgoing.set()
        self._arm()

    def _send_late(self) -> None:
        """Send the output of the sessions that others were before."""
        late, self._unsent = self._unsent, {}
        self._apply(late)

    def _send(self, peer: Peer) -> None:
        """Send the output of a session; if it ends, abort it unless it closes in time."""
        session = peer.session
        peer.flush()
        if session.closing is not None and peer.cut is None:
            # What nobody counts any more, or is too much, is not held for a farewell.
            most = self._limits.outbox_bytes if session.buffered else 0
            delay = 0.0 if peer.overflows(most) else self._limits.handshake_timeout
            peer.cut = self._loop.call_later(delay, peer.transport.abort)

    def _watch(self, peer: Peer) -> None:
        """Measure a connection on which data has arrived; raise an alarm if memory is short."""
        peer.measure()
        if peer.session.closing is not None and peer.begun > _MOST_AFTER_END:
            peer.transport.abort()  # nobody counts what arrives after the end
        if peer.overflows(self._limits.outbox_bytes):
            peer.session.overflow()  # of answers to its pings, which are in no outbox
        used, most = self._router.memory.used, self._limits.memory_bytes
        if used > most or peer.session.closing is not None:
            self._apply(self._router.settle())
        if self._alarm is not None:
            self._hold_up(peer)
        elif used > most // 2:
            log.warning("%d of %d bytes are held for sessions: large ones wait", used, most)
            self._guard(self._loop.time() + self._limits.patience)

    def _hold_up(self, peer: Peer) -> None:
        """Let a session begin a message only if it may while memory is short.

        One that has begun and takes more than one reading is read in any case.
        """
        if self._router.may_begin(peer.session):
            peer.transport.resume_reading()
        elif peer.begun <= WRITE_BUFFER:
            peer.transport.pause_reading()

    def _guard(self, until: float) -> None:
        """Hold up large sessions while memory is short, and at ``until`` close one."""
        for peer in self._peers.values():
            peer.measure()
        if self._router.memory.used > self._limits.memory_bytes // 2:
            now = self._loop.time()
            if now >= until:
                until = now + self._limits.patience
                self._apply(self._router.shed())
            for peer in self._peers.values():
                self._hold_up(peer)
            self._alarm = self._loop.call_later(_ALARM_SECONDS, self._guard, until)
            return
        self._alarm = None
        for peer in self._peers.values():
            peer.transport.resume_reading()

    def _arm(self) -> None:
        """Schedule the next tick of the router; an early tick does nothing."""
        at = self._router.next_tick()
        if at is None or (self._timer is not None and self._timer[0] <= at):
            return
        if self._timer is not None:
            self._timer[1].cancel()
        self._timer = at, self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self._router.tick(self._loop.time()))

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if path in SOCKET_PATHS:
            return None
        if path != HEALTH_PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, "Not found.\n")
        stats = self.stats()
        names = ("brokers", "sessions", "tools", "outstanding_calls")
        health = {"status": "ok", **{name: stats[name] for name in names}}
        response = connection.respond(HTTPStatus.OK, encode(health).decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response


@contextlib.asynccontextmanager
async def serve_broker(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    limits: Limits | None = None,
    origins: Sequence[str] = (),
    access: Access | None = None,
    backplane: str | None = None,
) -> AsyncIterator[Broker]:
    """Run a broker during the ``async with`` block.

    The broker stores nothing on disk. Any process that reaches its port can join with a key that
    it generated itself, so by default the broker listens on the loopback interface only.

    Args:
        host: Name or address of the interface to listen on.
        port: TCP port; 0 picks a free port, see :attr:`Broker.url`.
        limits: Sizes and times; the defaults of :class:`Limits` if not given.
        origins: Values of the ``Origin`` header to accept, for pages in a browser. Without them,
            every connection with this header is refused (403), since otherwise any web page that
            the user visits could use the broker.
        access: Who may join which network and offer which tool; by default, everyone may. The
            result of a registration lists the refused networks as ``droppedNetworks``.
        backplane: Address of a NATS server, see :mod:`.backplane`. All brokers with
            the same one are one network; they need the same limits and access rules.

    Raises:
        OSError: if the port cannot be bound.
        BackplaneLost: if the backplane cannot be reached.
        ValueError: if its address is not usable.
    """
    broker = Broker(limits or Limits(), access)
    if not is_loopback(host):
        log.warning(
            "listening on %s: any process that reaches this port can call every tool", host or "*"
        )
    async with AsyncExitStack() as stack:
        if backplane is not None:
            await stack.enter_async_context(broker._joined(Backplane(backplane)))
        server = await broker._open(host, port, origins)
        stack.push_async_callback(broker._close, server)
        yield broker


def _most_connections(wanted: int) -> int:
    """Return how many connections the files of the process allow, after raising their limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + _OTHER_FILES and soft != resource.RLIM_INFINITY:
        with contextlib.suppress(ValueError, OSError):
            more = wanted + _OTHER_FILES
            more = more if hard == resource.RLIM_INFINITY else min(more, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_FILES))


def _claim(session: Session | None, agents: Counter[str | None]) -> float:
    """Return how soon a connection is cut: first those that have not authenticated."""
    if session is None or session.agent_id is None:
        return math.inf
    return agents[session.agent_id]
