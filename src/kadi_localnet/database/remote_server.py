"""A remote ArcadeDB server or cluster, over its HTTP API."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx
import msgspec

from kadi_client.addresses import without_credentials
from kadi_client.messages import Raw, decode
from kadi_localnet.database import backend
from kadi_localnet.database.index_use import Use

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
_NOT_LEADER = "ServerIsNotTheLeaderException"
_NOT_SENT = re.compile(r"^Quorum \d++ not reached because only ")
"""A leader that has lost the other servers says so before it writes anything."""
_SIZE = backend.Statement("SELECT size FROM schema:database")
_MISSING = frozenset({"DatabaseNotAvailableException", "DatabaseNotFoundException"})

_UNKNOWN_OUTCOME = "the connection was lost before the answer: whether it took effect is unknown"

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Nodes(msgspec.Struct, frozen=True):
    leader: str = msgspec.field(name="leaderAddress", default="")


class _Answer(msgspec.Struct):
    """The members of answers: rows or names, a failure, or the state of a cluster."""

    result: list[Raw] = []
    truncated: bool = False
    error: str = ""
    detail: str = ""
    exception: str = ""
    ha: _Nodes = _Nodes()
    version: str = ""


_read_answer = msgspec.json.Decoder(_Answer).decode


class _NotLeader(backend.DatabaseError):
    """A statement that was not run, because only a leader that is followed can do so."""


class _Unreachable(Exception):
    """The request was not processed, so another server may be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request to a server: by default one that only the leader answers, and at most once."""

    path: str
    method: str = "POST"
    body: Mapping[str, Any] | None = None
    effect: str = ""
    """End of the error for an answer that is too large: what was written."""
    again: bool = False
    """Whether it may be sent again after its connection was lost."""
    reads: str | None = None
    """The database of a read, which any server may answer."""
    server: str | None = None
    """The only server that may answer."""
    headers: Mapping[str, str] = field(default_factory=dict)


class _Servers:
    """The addresses of a server or of the nodes of a cluster, and which node is the leader."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("urls: name at least one server, for example http://localhost:2480")
        self.all = [url.rstrip("/") for url in urls]
        self.first = self.all[0]
        """The leader, or else the server that answered last."""
        self.leader_known = len(self.all) == 1
        """Whether the leader need not be asked for."""
        self.led = False
        """Whether one of the servers is known to be the leader."""
        self._turn = 0

    def leader_first(self) -> list[str]:
        """Return the servers in the order in which what needs the leader is sent."""
        return self._from(self.all.index(self.first))

    def in_turn(self) -> list[str]:
        """Return the servers in the order in which a read tries them: another first each time."""
        self._turn = (self._turn + 1) % len(self.all)
        return self._from(self._turn)

    def elected(self, address: str) -> None:
        """Note the leader; ``address`` is ``host:port``, and ignored unless it is of a URL here."""
        self.lost()
        self.leader_known = True
        for url in self.all:
            known = httpx.URL(url)
            if address in (f"{known.host}:{known.port}", known.netloc.decode()):
                self.first = url
                self.led = True

    def lost(self) -> None:
        """Note that the leader is gone, or has changed."""
        self.leader_known = len(self.all) == 1
        self.led = False

    def _from(self, place: int) -> list[str]:
        return self.all[place:] + self.all[:place]


class HttpDatabases(backend.Backend):
    """A server or the nodes of a cluster.

    Statements go to the leader of a cluster only, because the others lag behind; if it is not among
    the URLs or the servers name none, to the first URL that accepts a connection. A read whose
    connection is lost is sent again; a write is not, because it may have taken effect. A single
    statement runs in a transaction of the server, several in a session. What a server refuses
    because it is not the leader or has lost the others, and what the leader does not accept, is
    repeated until the deadline, while a new leader is elected.

    Args:
        urls: base URLs of the servers, the preferred one first.
        user: their user.
        password: the user's password.
        max_rows: maximum number of rows of an answer.
        max_bytes: maximum size of an answer.
        spread_reads: spread reads over all servers. Each waits for what was committed before the
            read (``LINEARIZABLE``). Servers that do not replicate by Raft cannot, so the leader
            alone answers.
        oldest: oldest release of the servers on which a database may be created.
    """

    container = "server"
    late_read = ""
    late_write = ": whether it took effect is unknown"

    def __init__(
        self,
        urls: Sequence[str],
        *,
        user: str,
        password: str,
        max_rows: int = backend.MAX_ROWS,
        max_bytes: int = backend.MAX_BYTES,
        spread_reads: bool = False,
        oldest: Sequence[int] = backend.MINIMUM_VERSION,
    ) -> None:
        super().__init__(concurrency=CONNECTIONS)
        self._servers = _Servers(urls)
        self._asking = asyncio.Lock()
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._oldest = oldest
        self._spreads = spread_reads and len(urls) > 1
        self._consistent: set[str] = set()
        """Databases of which every server can answer with all that was committed before a read."""
        self._client = httpx.AsyncClient(
            auth=httpx.BasicAuth(user, password),
            limits=httpx.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=20.0,
            ),
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _read(self, database: str, statement: backend.Statement, _use: Use) -> backend.Rows:
        request = _Request(path=f"/api/v1/query/{database}", again=True, reads=database)
        return await self._run(request, statement)

    async def _write(
        self, database: str, statements: Sequence[backend.Statement], _use: Use
    ) -> list[backend.Rows]:
        command = _Request(path=f"/api/v1/command/{database}", effect="; it took effect")
        if len(statements) == 1:
            return [await self._run(command, statements[0])]
        begun = await self._send(_Request(path=f"/api/v1/begin/{database}", again=True))
        step = _Request(
            path=command.path,
            effect="; nothing was written",
            again=True,
            server=str(begun.url).removesuffix(begun.url.raw_path.decode()),
            headers={_SESSION: begun.headers[_SESSION]},
        )
        try:
            rows = [await self._run(step, statement) for statement in statements]
            await self._send(replace(step, path=f"/api/v1/commit/{database}", again=False))
        except BaseException:
            await self._roll_back(replace(step, path=f"/api/v1/rollback/{database}"))
            raise
        return rows

    async def _roll_back(self, request: _Request) -> None:
        """Try to roll back a session; the server expires it anyway."""
        try:
            await self._client.post(
                f"{request.server}{request.path}",
                headers=request.headers,
                timeout=_ROLLBACK_TIMEOUT,
            )
        except httpx.HTTPError as exc:
            log.warning("%s failed: %s", request.path, type(exc).__name__)

    async def check_engine(self) -> None:
        """Check that the servers are not too old; one that does not answer yet is not checked.

        Raises:
            DatabaseError: naming both versions.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                answer, url = await self._databases()
        except (backend.DatabaseError, TimeoutError) as exc:
            log.warning("the version of the database server is not known yet: %s", exc)
            return
        self._check_version(answer.version, url)

    def _check_version(self, version: str, url: str) -> None:
        if backend.is_too_old(version, self._oldest):
            raise backend.DatabaseError(
                f"ArcadeDB {version.split()[0]} found at {without_credentials(url)},"
                f" {backend.dotted(self._oldest)} or later is needed"
            )

    async def _databases(self) -> tuple[_Answer, str]:
        """Return a server's list of databases, with its version, and the server."""
        response = await self._send(_Request(path="/api/v1/databases", method="GET", again=True))
        server = str(response.url).removesuffix(response.url.raw_path.decode())
        return _read_answer(response.content), server

    async def _names(self) -> list[str]:
        answer, _ = await self._databases()
        return list(map(decode, answer.result))

    async def _size(self, database: str) -> int | None:
        rows = decode(bytes((await self._read(database, _SIZE, Use())).json))
        size = rows[0].get("size") if rows else None
        return size if isinstance(size, int) else None

    async def _create(self, name: str) -> None:
        answer, url = await self._databases()
        self._check_version(answer.version, url)
        command = {"command": f"create database {name}"}
        await self._send(_Request(path="/api/v1/server", body=command))

    async def _set_up(self, name: str) -> None:
        alter = backend.Statement(
            f'ALTER DATABASE `arcadedb.dateTimeFormat` "{backend.DATETIME_FORMAT}"'
        )
        await self._write(name, [alter], Use())

    async def _repeated(self, limit: asyncio.Timeout, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt after conflicts, and until the deadline while there is no leader."""
        while True:
            try:
                return await super()._repeated(limit, attempt)
            except _NotLeader as exc:
                self._servers.lost()
                remaining = (limit.when() or 0.0) - asyncio.get_running_loop().time()
                if remaining < 2 * _ELECTION_PAUSE:
                    raise backend.DatabaseError(f"the cluster has no leader: {exc}") from exc
                await asyncio.sleep(_ELECTION_PAUSE)

    async def _run(self, request: _Request, statement: backend.Statement) -> backend.Rows:
        body = {
            "language": statement.language,
            "command": statement.text,
            "limit": self._max_rows + 1,
            **({"params": statement.params} if statement.params else {}),
        }
        response = await self._send(replace(request, body=body))
        if request.reads is not None and _COMMIT_INDEX in response.headers:
            self._consistent.add(request.reads)
        try:
            answer = _read_answer(response.content)
        except msgspec.MsgspecError as exc:
            raise backend.DatabaseError(f"the server's answer cannot be read: {exc}") from exc
        count = len(answer.result)
        if count > self._max_rows or answer.truncated:
            raise backend.too_many_rows(self._max_rows, request.effect)
        return backend.rows_of(b",".join(map(bytes, answer.result)), count)

    async def _send(self, request: _Request) -> httpx.Response:
        """Send a request to the first server that accepts it.

        Raises:
            Conflict: if the server wants it repeated.
            DatabaseError: if no server answers, or the server refused it.
        """
        content = None if request.body is None else backend.encoded(request.body)
        needs_leader = False
        if request.server is not None:
            candidates = [request.server]
        elif self._spreads and request.reads in self._consistent:
            request = replace(request, headers={_CONSISTENCY: "LINEARIZABLE"})
            candidates = self._servers.in_turn()
        else:
            await self._find_leader()
            candidates = self._servers.leader_first()
            needs_leader = True
        failures = []
        for url in candidates:
            try:
                response = await self._attempt(url, request, content)
            except _Unreachable as exc:
                failures.append(f"{without_credentials(url)}: {exc}")
                led = self._servers.led
                self._servers.lost()
                if led and needs_leader:
                    raise _NotLeader(failures[0]) from exc
                continue
            if needs_leader:
                self._servers.first = url
            _raise_for(response)
            return response
        raise backend.DatabaseError(f"no database server answers ({'; '.join(failures)})")

    async def _find_leader(self) -> None:
        """Ask the servers for the leader, unless it is known.

        Raises:
            _NotLeader: if as many servers name one leader as name another: during an election, or
                if a leader that was replaced has not noticed.
        """
        async with self._asking:
            if self._servers.leader_known:
                return
            urls = self._servers.leader_first()
            answers = await asyncio.gather(*map(self._named_by, urls))
            named = {url: name for url, name in zip(urls, answers, strict=True) if name is not None}
            if not named:
                return
            votes = Counter(named.values()).most_common(2)
            if len(votes) == 2 and votes[0][1] == votes[1][1]:
                leaders = " and ".join(leader or "none" for leader, _ in votes)
                raise _NotLeader(f"the servers name different leaders: {leaders}")
            self._servers.first = next(iter(named))
            self._servers.elected(votes[0][0])

    async def _named_by(self, url: str) -> str | None:
        """Return the leader that a server names, empty for none; ``None`` if it does not answer."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                request = _Request(path=_CLUSTER, method="GET", again=True)
                response = await self._attempt(url, request, None)
            return _read_answer(response.content).ha.leader
        except (_Unreachable, TimeoutError):
            return None
        except msgspec.MsgspecError:
            return ""

    async def _attempt(self, url: str, request: _Request, content: bytes | None) -> httpx.Response:
        headers = {"content-type": "application/json", **request.headers}
        try:
            async with self._client.stream(
                request.method, url + request.path, content=content, headers=headers
            ) as response:
                return await self._received(response, request.effect)
        except httpx.TransportError as exc:
            if request.again or isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout):
                raise _Unreachable(str(exc) or type(exc).__name__) from exc
            raise backend.DatabaseError(_UNKNOWN_OUTCOME) from exc

    async def _received(self, response: httpx.Response, effect: str) -> httpx.Response:
        """Read a response to its end, unless it is larger than allowed."""
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > self._max_bytes:
                raise backend.too_many_bytes(self._max_bytes, effect)
        headers = httpx.Headers(response.headers)
        headers.pop("content-encoding", None)  # It was decoded.
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(content), request=response.request
        )


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        failure = _read_answer(response.content)
    except msgspec.MsgspecError:
        failure = _Answer(error=f"HTTP {response.status_code}")
    kind = failure.exception.rpartition(".")[2]
    detail = failure.detail or failure.error
    if response.status_code in (401, 403):
        raise backend.DatabaseError(f"the database server rejected the user or password: {detail}")
    if kind == "DatabaseAlreadyExistsException":
        raise backend.DatabaseError(detail[:1].lower() + detail[1:])
    if kind in _MISSING:
        raise backend.DatabaseError(f"{detail}: create it with arcade-db-create")
    if kind == _NOT_LEADER or _NOT_SENT.match(detail):
        raise _NotLeader(detail)
    error = backend.engine_error(kind or f"HTTP {response.status_code}", detail)
    raise backend.Conflict(str(error)) if kind in _CONFLICTS else error
