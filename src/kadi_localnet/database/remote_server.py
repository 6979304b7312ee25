"""A remote ArcadeDB server or cluster, over its HTTP API."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec

from kadi_client.messages import Raw, encode
from kadi_localnet.database.backend import (
    DATETIME_FORMAT,
    MAX_ROWS,
    Conflict,
    Counts,
    DatabaseError,
    Rows,
    Statement,
    engine_error,
    retry_delays,
    rows_of,
    too_many_rows,
)

CONNECTIONS = 32
"""Number of threads; one agent alone gets half of them."""
CONNECT_TIMEOUT = 3.0
_SESSION = "arcadedb-session-id"
_ROLLBACK_TIMEOUT = 2.0

_CONFLICTS = frozenset(
    {"ConcurrentModificationException", "LockTimeoutException", "NeedRetryException"}
)
_MISSING = frozenset({"DatabaseNotAvailableException", "DatabaseNotFoundException"})

_UNKNOWN_OUTCOME = "the connection was lost before the answer: whether it took effect is unknown"

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


_answers = msgspec.json.Decoder(_Answer)
_failures = msgspec.json.Decoder(_Failure)
_names = msgspec.json.Decoder(_Names)


class _Unreachable(Exception):
    """The request was not processed, so another server may be tried."""


class HttpDatabases:
    """A :class:`~kadi_localnet.database.backend.Backend` over a server or the nodes of a cluster.

    The first URL that accepts a connection is used until it refuses one; then the next is tried. A
    read whose connection is lost is sent to the next server; a write is not, because it may have
    taken effect. A single statement runs in a transaction of the server, several in a session.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        user: str,
        password: str,
        max_rows: int = MAX_ROWS,
        connect_timeout: float = CONNECT_TIMEOUT,
        connections: int = CONNECTIONS,
    ) -> None:
        if not urls:
            raise ValueError("urls: name at least one server, for example http://localhost:2480")
        self.counts = Counts()
        self.concurrency = connections
        self._urls = [url.rstrip("/") for url in urls]
        self._preferred = 0
        self._max_rows = max_rows
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
        async with _Deadline(timeout, writes=False) as deadline:
            path = f"/api/v1/query/{database}"
            for delay in retry_delays():
                try:
                    return await self._run(path, statement, deadline, effect="")
                except Conflict:
                    await asyncio.sleep(delay)
            return await self._run(path, statement, deadline, effect="")

    async def write(
        self, database: str, statements: Sequence[Statement], *, timeout: float
    ) -> list[Rows]:
        """Run statements in one transaction; retry it after a conflict with another one."""
        self.counts.writes += len(statements)
        async with _Deadline(timeout, writes=True) as deadline:
            for delay in retry_delays():
                try:
                    return await self._transaction(database, statements, deadline)
                except Conflict:
                    await asyncio.sleep(delay)
            try:
                return await self._transaction(database, statements, deadline)
            except Conflict as exc:
                raise DatabaseError(
                    f"conflicts with concurrent writes at every attempt, nothing was written: {exc}"
                ) from exc

    async def databases(self, *, timeout: float) -> list[str]:
        """Return the names of the databases that the user may see, sorted."""
        async with _Deadline(timeout, writes=False) as deadline:
            response = await self._send("GET", "/api/v1/databases", None, deadline)
            return sorted(_names.decode(response.content).result)

    async def create(self, name: str, *, timeout: float) -> None:
        """Create a database; an existing one is an error."""
        async with _Deadline(timeout, writes=True) as deadline:
            command = {"command": f"create database {name}"}
            await self._send("POST", "/api/v1/server", command, deadline, writes=True)
            alter = Statement(f'ALTER DATABASE `arcadedb.dateTimeFormat` "{DATETIME_FORMAT}"')
            await self._transaction(name, [alter], deadline)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

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
    ) -> Rows:
        body: dict[str, Any] = {
            "language": statement.language,
            "command": statement.text,
            "limit": self._max_rows + 1,
        }
        if statement.params:
            body["params"] = statement.params
        response = await self._send(
            "POST", path, body, deadline, writes=writes, session=session, base=base
        )
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
    ) -> httpx.Response:
        content = None if body is None else _encoded(body)
        headers = {"content-type": "application/json", **(session or {})}
        if base is not None:
            candidates = [base]
        else:
            candidates = self._urls[self._preferred :] + self._urls[: self._preferred]
        failures = []
        for url in candidates:
            try:
                response = await self._attempt(
                    method, url + path, content, headers, deadline, resend=not writes
                )
            except _Unreachable as exc:
                failures.append(f"{_redacted(url)}: {exc}")
                continue
            if base is None:
                self._preferred = self._urls.index(url)
            try:
                _raise_for(response)
            except Conflict:
                self.counts.add_conflict()
                raise
            return response
        raise DatabaseError(f"no database server answers ({'; '.join(failures)})")

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
            return await self._client.request(
                method, url, content=content, headers=headers, timeout=timeout
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise _Unreachable(str(exc) or type(exc).__name__) from exc
        except httpx.TimeoutException as exc:
            raise TimeoutError from exc
        except httpx.TransportError as exc:
            if resend:
                raise _Unreachable(str(exc) or type(exc).__name__) from exc
            raise DatabaseError(_UNKNOWN_OUTCOME) from exc


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
    error = engine_error(kind or f"HTTP {response.status_code}", detail)
    raise Conflict(str(error)) if kind in _CONFLICTS else error


def _redacted(url: str) -> str:
    """Return a URL without credentials."""
    return str(httpx.URL(url).copy_with(username=None, password=None))
