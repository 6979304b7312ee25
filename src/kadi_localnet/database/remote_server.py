"""A remote ArcadeDB server or cluster, over its HTTP API."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from kadi_client.addresses import without_credentials
from kadi_client.messages import Raw, encode
from kadi_localnet.database.backend import (
    DATETIME_FORMAT,
    MAX_BYTES,
    MAX_ROWS,
    Conflict,
    Counts,
    DatabaseError,
    Rows,
    Statement,
    engine_error,
    retry_delays,
    rows_of,
    too_many_bytes,
    too_many_rows,
)
from kadi_localnet.database.index_use import IndexUse

CONNECTIONS = 32
"""Number of threads; one agent alone gets half of them."""
CONNECT_TIMEOUT = 3.0
_SESSION = "arcadedb-session-id"
_ROLLBACK_TIMEOUT = 2.0
_CLUSTER = "/api/v1/server?mode=cluster"
_ELECTION_PAUSE = 0.2
_CONSISTENCY = "X-ArcadeDB-Read-Consistency"
_COMMIT_INDEX = "X-ArcadeDB-Commit-Index"
"""Answers have it if the servers replicate by Raft, which linearizable reads need."""

_CONFLICTS = frozenset(
    {"ConcurrentModificationException", "LockTimeoutException", "NeedRetryException"}
)
_NOT_LEADER = frozenset({"ServerIsNotTheLeaderException"})
_NOT_SENT = re.compile(r"^Quorum \d++ not reached because only ")
"""A leader that has lost the other servers says so before it writes anything."""
_MISSING = frozenset({"DatabaseNotAvailableException", "DatabaseNotFoundException"})

_UNKNOWN_OUTCOME = "the connection was lost before the answer: whether it took effect is unknown"

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct):
    result: list[Raw] = []
    truncated: bool = False


class _Failure(msgspec.Struct):
    error: str = ""
    detail: str = ""
    exception: str = ""


class _Names(msgspec.Struct):
    result: list[str]


class _Nodes(msgspec.Struct, frozen=True):
    leader: str = msgspec.field(name="leaderAddress", default="")


class _Cluster(msgspec.Struct):
    ha: _Nodes = _Nodes()


_answers = msgspec.json.Decoder(_Answer)
_failures = msgspec.json.Decoder(_Failure)
_names = msgspec.json.Decoder(_Names)
_clusters = msgspec.json.Decoder(_Cluster)


class _NotLeader(Conflict):
    """A statement that was not run, because only a leader that is followed can do so."""


class _Exceeded(Exception):
    """The answer is larger than allowed; the rest of it was not read."""


class _Unreachable(Exception):
    """The request was not processed, so another server may be tried."""


class _Servers:
    """The addresses of a server or of the nodes of a cluster, and which node is the leader.

    Args:
        urls: base URLs, the preferred one first.
        spread: whether reads are spread over all servers, as far as they are consistent there.
    """

    def __init__(self, urls: Sequence[str], *, spread: bool = False) -> None:
        if not urls:
            raise ValueError("urls: name at least one server, for example http://localhost:2480")
        self.all = [url.rstrip("/") for url in urls]
        self.leader_known = len(self.all) == 1
        """Whether the leader need not be asked for."""
        self.led = False
        """Whether one of the servers is known to be the leader."""
        self._spread = spread and len(self.all) > 1
        self._first = 0
        self._turn = 0
        self._consistent: set[str] = set()

    def leader_first(self) -> list[str]:
        """Return the servers in the order in which what needs the leader is sent."""
        return self._from(self._first)

    def in_turn(self) -> list[str]:
        """Return the servers in the order in which a read tries them: another first each time."""
        self._turn = (self._turn + 1) % len(self.all)
        return self._from(self._turn)

    def spreads(self, database: str) -> bool:
        """Return whether reads of a database are spread."""
        return self._spread and database in self._consistent

    def is_consistent(self, database: str) -> None:
        """Note that every server can answer with all that was committed before a read."""
        self._consistent.add(database)

    def answered(self, url: str) -> None:
        """Note that a server answered a request that is meant for the leader."""
        self._first = self.all.index(url)

    def elected(self, address: str) -> None:
        """Note the leader; ``address`` is ``host:port``, and ignored unless it is of a URL here."""
        self.leader_known = True
        self.led = False
        for place, url in enumerate(self.all):
            known = httpx.URL(url)
            if address in (f"{known.host}:{known.port}", known.netloc.decode()):
                self._first = place
                self.led = True

    def lost(self) -> None:
        """Note that the leader is gone, or has changed."""
        self.leader_known = len(self.all) == 1
        self.led = False

    def _from(self, place: int) -> list[str]:
        return self.all[place:] + self.all[:place]


class HttpDatabases:
    """A :class:`~kadi_localnet.database.backend.Backend` over a server or the nodes of a cluster.

    Statements go to the leader of a cluster only, because the others lag behind; if it is not among
    the URLs or the servers name none, to the first URL that accepts a connection. A read whose
    connection is lost is sent again; a write is not, because it may have taken effect. A single
    statement runs in a transaction of the server, several in a session. What a server refuses
    because it is not the leader or has lost the others, and what the leader does not accept, is
    repeated until the deadline, while a new leader is elected.

    Args:
        urls: base URLs of the servers.
        user: their user.
        password: the user's password.
        max_rows: maximum number of rows of an answer.
        max_bytes: maximum size of an answer.
        connect_timeout: seconds after which a server counts as unreachable.
        connections: maximum number of connections.
        spread_reads: spread reads over all servers. Each waits for what was committed before the
            read (``LINEARIZABLE``). Servers that do not replicate by Raft cannot, so the leader
            alone answers.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        user: str,
        password: str,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        connect_timeout: float = CONNECT_TIMEOUT,
        connections: int = CONNECTIONS,
        spread_reads: bool = False,
    ) -> None:
        self._servers = _Servers(urls, spread=spread_reads)
        self._asking = asyncio.Lock()
        self._indexes = IndexUse()
        self.counts = Counts()
        self.concurrency = connections
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._connect_timeout = connect_timeout
        self._client = httpx.AsyncClient(
            auth=httpx.BasicAuth(user, password),
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=20.0,
            ),
            trust_env=False,
        )

    async def read(self, database: str, statement: Statement, *, timeout: float) -> Rows:
        """Run a read-only statement."""
        self.counts.reads += 1
        async with (
            _Deadline(timeout, writes=False) as deadline,
            self._indexes.on_server([statement]),
        ):
            path = f"/api/v1/query/{database}"
            return await self._repeated(
                lambda: self._run(path, statement, deadline, effect="", reads=database), deadline
            )

    async def write(
        self, database: str, statements: Sequence[Statement], *, timeout: float
    ) -> list[Rows]:
        """Run statements in one transaction; retry it after a conflict with another one."""
        self.counts.writes += len(statements)
        async with (
            _Deadline(timeout, writes=True) as deadline,
            self._indexes.on_server(statements),
        ):
            try:
                return await self._repeated(
                    lambda: self._transaction(database, statements, deadline), deadline
                )
            except Conflict as exc:
                raise DatabaseError(
                    f"conflicts with concurrent writes at every attempt, nothing was written: {exc}"
                ) from exc

    async def databases(self, *, timeout: float) -> list[str]:
        """Return the names of the databases that the user may see, sorted."""
        async with _Deadline(timeout, writes=False) as deadline:
            response = await self._repeated(
                lambda: self._send("GET", "/api/v1/databases", None, deadline), deadline
            )
            return sorted(_names.decode(response.content).result)

    async def create(self, name: str, *, timeout: float) -> None:
        """Create a database; an existing one is an error."""
        async with _Deadline(timeout, writes=True) as deadline:
            command = {"command": f"create database {name}"}
            await self._repeated(
                lambda: self._send("POST", "/api/v1/server", command, deadline, writes=True),
                deadline,
            )
            alter = Statement(f'ALTER DATABASE `arcadedb.dateTimeFormat` "{DATETIME_FORMAT}"')
            await self._transaction(name, [alter], deadline)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], deadline: _Deadline) -> T:
        """Repeat an attempt after a conflict, and until the deadline while there is no leader."""
        delays = retry_delays()
        while True:
            try:
                return await attempt()
            except _NotLeader as exc:
                self._servers.lost()
                if deadline.remaining < 2 * _ELECTION_PAUSE:
                    raise DatabaseError(f"the cluster has no leader: {exc}") from exc
                await asyncio.sleep(_ELECTION_PAUSE)
            except Conflict:
                delay = next(delays, None)
                if delay is None:
                    raise
                await asyncio.sleep(delay)

    async def _transaction(
        self, database: str, statements: Sequence[Statement], deadline: _Deadline
    ) -> list[Rows]:
        path = f"/api/v1/command/{database}"
        if len(statements) == 1:
            effect = "; it took effect"
            return [await self._run(path, statements[0], deadline, effect=effect, writes=True)]
        begun = await self._send("POST", f"/api/v1/begin/{database}", None, deadline)
        base = str(begun.url).removesuffix(begun.url.raw_path.decode())
        session = {_SESSION: begun.headers[_SESSION]}
        try:
            rows = [
                await self._run(
                    path,
                    statement,
                    deadline,
                    effect="; nothing was written",
                    session=session,
                    base=base,
                )
                for statement in statements
            ]
            commit = f"/api/v1/commit/{database}"
            await self._send(
                "POST", commit, None, deadline, writes=True, session=session, base=base
            )
        except BaseException:
            await self._roll_back(database, session, base)
            raise
        return rows

    async def _roll_back(self, database: str, session: Mapping[str, str], base: str) -> None:
        """Try to roll back a session; the server expires it anyway."""
        try:
            await self._client.post(
                f"{base}/api/v1/rollback/{database}", headers=session, timeout=_ROLLBACK_TIMEOUT
            )
        except httpx.HTTPError as exc:
            log.warning("rollback on %s failed: %s", database, type(exc).__name__)

    async def _run(
        self,
        path: str,
        statement: Statement,
        deadline: _Deadline,
        *,
        effect: str,
        writes: bool = False,
        session: Mapping[str, str] | None = None,
        base: str | None = None,
        reads: str | None = None,
    ) -> Rows:
        body: dict[str, Any] = {
            "language": statement.language,
            "command": statement.text,
            "limit": self._max_rows + 1,
        }
        if statement.params:
            body["params"] = statement.params
        try:
            response = await self._send(
                "POST", path, body, deadline, writes=writes, session=session, base=base, reads=reads
            )
        except _Exceeded as exc:
            raise too_many_bytes(self._max_bytes, effect) from exc
        if reads is not None and _COMMIT_INDEX in response.headers:
            self._servers.is_consistent(reads)
        try:
            answer = _answers.decode(response.content)
        except msgspec.MsgspecError as exc:
            raise DatabaseError(f"the server's answer cannot be read: {exc}") from exc
        count = len(answer.result)
        if count > self._max_rows or answer.truncated:
            raise too_many_rows(self._max_rows, effect)
        return rows_of(b",".join(map(bytes, answer.result)), count, statement)

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        deadline: _Deadline,
        *,
        writes: bool = False,
        session: Mapping[str, str] | None = None,
        base: str | None = None,
        reads: str | None = None,
    ) -> httpx.Response:
        """Send a request to the first server that accepts it.

        Args:
            method: of HTTP.
            path: on the server.
            body: sent as JSON.
            deadline: of the call.
            writes: whether it must not be sent again after a lost connection.
            session: header of the session it belongs to.
            base: the only server that may answer.
            reads: the database of a read, which any server may answer.

        Raises:
            Conflict: if the server wants it repeated.
            DatabaseError: if no server answers, or the server refused it.
        """
        content = None if body is None else _encoded(body)
        headers = {"content-type": "application/json", **(session or {})}
        spread = reads is not None and self._servers.spreads(reads)
        if base is not None:
            candidates = [base]
        elif spread:
            headers[_CONSISTENCY] = "LINEARIZABLE"
            candidates = self._servers.in_turn()
        else:
            await self._find_leader(deadline)
            candidates = self._servers.leader_first()
        failures = []
        for url in candidates:
            try:
                response = await self._attempt(
                    method, url + path, content, headers, deadline, resend=not writes
                )
            except _Unreachable as exc:
                failures.append(f"{without_credentials(url)}: {exc}")
                led = self._servers.led
                self._servers.lost()
                if led and base is None and not spread:
                    raise _NotLeader(failures[0]) from exc
                continue
            if base is None and not spread:
                self._servers.answered(url)
            try:
                _raise_for(response)
            except Conflict:
                self.counts.add_conflict()
                raise
            return response
        raise DatabaseError(f"no database server answers ({'; '.join(failures)})")

    async def _find_leader(self, deadline: _Deadline) -> None:
        """Ask the servers for the leader, unless it is known.

        Raises:
            _NotLeader: if as many servers name one leader as name another: during an election, or
                if a leader that was replaced has not noticed.
        """
        async with self._asking:
            if self._servers.leader_known:
                return
            urls = self._servers.leader_first()
            answers = await asyncio.gather(*(self._named_by(url, deadline) for url in urls))
            named = dict(zip(urls, answers, strict=True))
            reached = [url for url, leader in named.items() if leader is not None]
            if not reached:
                return
            votes = Counter(named[url] or "" for url in reached).most_common(2)
            if len(votes) == 2 and votes[0][1] == votes[1][1]:
                leaders = " and ".join(leader or "none" for leader, _ in votes)
                raise _NotLeader(f"the servers name different leaders: {leaders}")
            self._servers.answered(reached[0])
            self._servers.elected(votes[0][0])

    async def _named_by(self, url: str, deadline: _Deadline) -> str | None:
        """Return the leader that a server names, empty for none; ``None`` if it does not answer."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                response = await self._attempt(
                    "GET", f"{url}{_CLUSTER}", None, {}, deadline, resend=True
                )
            return _clusters.decode(response.content).ha.leader
        except (_Unreachable, TimeoutError):
            return None
        except msgspec.MsgspecError:
            return ""

    async def _attempt(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        deadline: _Deadline,
        *,
        resend: bool,
    ) -> httpx.Response:
        timeout = httpx.Timeout(
            deadline.remaining, connect=min(self._connect_timeout, deadline.remaining)
        )
        try:
            async with self._client.stream(
                method, url, content=content, headers=headers, timeout=timeout
            ) as response:
                return await self._read(response)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise _Unreachable(str(exc) or type(exc).__name__) from exc
        except httpx.TimeoutException as exc:
            raise TimeoutError from exc
        except httpx.TransportError as exc:
            if resend:
                raise _Unreachable(str(exc) or type(exc).__name__) from exc
            raise DatabaseError(_UNKNOWN_OUTCOME) from exc

    async def _read(self, response: httpx.Response) -> httpx.Response:
        """Read a response to its end.

        Raises:
            _Exceeded: if it is larger than allowed.
        """
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > self._max_bytes:
                raise _Exceeded
        headers = httpx.Headers(response.headers)
        headers.pop("content-encoding", None)  # It was decoded.
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(content), request=response.request
        )


class _Deadline:
    """A deadline for a block, whose error says what is known of the effect."""

    def __init__(self, timeout: float, *, writes: bool) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._guard = asyncio.timeout(timeout)
        self._writes = writes

    @property
    def remaining(self) -> float:
        """Return the seconds left, at least a millisecond."""
        return max(0.001, self._end - time.monotonic())

    async def __aenter__(self) -> _Deadline:
        await self._guard.__aenter__()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._guard.__aexit__(kind, error, trace)
            if isinstance(error, TimeoutError):
                raise error
        except TimeoutError as exc:
            effect = ": whether it took effect is unknown" if self._writes else ""
            raise DatabaseError(f"no answer within {self._timeout:g} s{effect}") from exc


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return encode(body)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        raise DatabaseError(f"params: not JSON: {exc}") from exc


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        failure = _failures.decode(response.content)
    except msgspec.MsgspecError:
        failure = _Failure(error=f"HTTP {response.status_code}")
    kind = failure.exception.rpartition(".")[2]
    detail = failure.detail or failure.error
    if response.status_code in (401, 403):
        raise DatabaseError(f"the database server rejected the user or password: {detail}")
    if kind == "DatabaseAlreadyExistsException":
        raise DatabaseError(detail[:1].lower() + detail[1:])
    if kind in _MISSING:
        raise DatabaseError(f"{detail}: create it with arcade-db-create")
    if kind in _NOT_LEADER or _NOT_SENT.match(detail):
        raise _NotLeader(detail)
    error = engine_error(kind or f"HTTP {response.status_code}", detail)
    raise Conflict(str(error)) if kind in _CONFLICTS else error
