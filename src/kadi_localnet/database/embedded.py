"""ArcadeDB in this process, over a directory with one subdirectory for each database.

The engine blocks, so every call runs in a bounded pool of threads. When its deadline passes or its
caller is cancelled, a waiting call is dropped. A running call is stopped through the engine's
registry of running queries, which statements check while they run; a write checks it again before
it commits. Only a commit that has begun is not stopped.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jpype

from kadi_localnet.database import jvm
from kadi_localnet.database.backend import (
    DATETIME_FORMAT,
    MAX_BYTES,
    MAX_ROWS,
    RUN,
    Backend,
    Conflict,
    DatabaseError,
    Rows,
    Statement,
)
from kadi_localnet.database.bridge import wrap_classes
from kadi_localnet.database.conversion import Parameters, ResultWriter
from kadi_localnet.database.disk_space import DiskSpace
from kadi_localnet.database.index_search import IndexSearcher, condition_of
from kadi_localnet.database.index_use import Use, dropped_types
from kadi_localnet.database.search_input import IndexSearch
from kadi_localnet.database.statement_guard import confine, statement_guard
from kadi_localnet.database.thread_contexts import ThreadContexts
from kadi_localnet.database.tickets import Stopped, Ticket, messages, translate
from kadi_localnet.database.vector_indexes import (
    close_dropped_graphs,
    open_repaired,
    stored_vectors,
    warm_vector_indexes,
)

T = TypeVar("T")

WORKERS = 12
"""Number of threads; one agent alone gets half of them."""
STUCK_SECONDS = 120.0
_CLOSE_TIMEOUT = 10.0
_CLOSING = "the database ability is shutting down"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    java: Any
    writer: ResultWriter
    searcher: IndexSearcher


class _Engine:
    """Java classes and objects, looked up after the JVM was started."""

    def __init__(self) -> None:
        self.guard = statement_guard()
        self.parameters = Parameters()
        self.factory = jpype.JClass("com.arcadedb.database.DatabaseFactory")
        self.registry = jpype.JClass("com.arcadedb.query.RunningQueryRegistry")()
        self.no_client = jpype.JClass("com.arcadedb.query.RunningQuery$Client").NONE
        self.need_retry = jpype.JClass("com.arcadedb.exception.NeedRetryException")
        self.transaction = jpype.JClass("com.arcadedb.database.TransactionContext")
        self.contexts = ThreadContexts()
        self.open: dict[str, _Open] = {}


class EmbeddedDatabases(Backend):
    """The engine in this process, over a local directory.

    Args:
        directory: Directory of the databases.
        heap_mb: Maximum size of the Java heap in MiB; by default a quarter of the memory, at most
            2 GiB, or more if the stored vectors need it. The first instance of a process determines
            it.
        workers: Maximum number of calls that run at a time.
        max_rows: Maximum number of rows of an answer.
        max_bytes: Maximum size of an answer as JSON.
        warm_up: Open existing databases and load their vector indexes in the background at the
            start, so that the first call does not wait for it.
        jvm_options: Further options of the JVM.
        stuck: Called from a thread if no call has ended for two minutes although one was stopped
            that long ago: the engine will not answer any more.
    """

    searches_indexes = True
    container = "embedded"
    late_read = late_write = (
        ": the statement was stopped; a write was rolled back unless its commit had begun"
    )

    def __init__(
        self,
        directory: Path,
        *,
        heap_mb: int | None = None,
        workers: int = WORKERS,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        warm_up: bool = True,
        jvm_options: Sequence[str] = (),
        stuck: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(concurrency=workers)
        self._directory = directory
        self._space = DiskSpace(directory)
        self._heap_mb = heap_mb
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._warm_up = warm_up
        self._jvm_options = jvm_options
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="arcadedb")
        self._tickets: set[Ticket] = set()
        self._stuck = stuck
        self._ended_at = time.monotonic()
        """When the last call ended in a thread."""
        self._engine: _Engine | None = None
        self._opening = threading.Lock()
        self._closing = threading.Event()
        self._warmers: list[threading.Thread] = []

    async def start(self) -> None:
        """Start the engine, and open the existing databases in the background.

        Raises:
            DatabaseError: if the engine does not start or is too old, or the directory cannot be
                written.
        """
        await asyncio.wrap_future(self._pool.submit(self._start))
        if self._warm_up:
            self._pool.submit(self._open_existing)
        if self._stuck is not None:
            threading.Thread(target=self._watch, args=(self._stuck,), daemon=True).start()

    async def __aenter__(self) -> EmbeddedDatabases:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop running calls, roll them back and close the databases."""
        self._closing.set()
        for ticket in tuple(self._tickets):
            ticket.stop()
        await asyncio.to_thread(self._close)

    async def _read(self, database: str, statement: Statement, use: Use) -> Rows:
        return await self._in_thread(lambda ticket: self._query(database, statement, ticket), use)

    async def _search(self, asked: IndexSearch, use: Use) -> Mapping[str, Any]:
        return await self._in_thread(lambda ticket: self._find(asked, ticket), use)

    async def _write(self, database: str, statements: Sequence[Statement], use: Use) -> list[Rows]:
        return await self._in_thread(
            lambda ticket: self._command(database, statements, ticket), use
        )

    async def _names(self) -> list[str]:
        return await self._in_thread(lambda _ticket: self._stored())

    async def _size(self, database: str) -> int:
        return await self._in_thread(lambda ticket: self._measure(database, ticket))

    async def _create(self, name: str) -> None:
        await self._in_thread(lambda _ticket: self._add(name))

    async def _set_up(self, name: str) -> None:
        """Do nothing: a database is created with its settings."""

    async def _in_thread(self, work: Callable[[Ticket], T], use: Use | None = None) -> T:
        """Run the work of a call in a thread, in the context of the call."""
        if self._closing.is_set():
            raise DatabaseError(_CLOSING)
        ticket = Ticket()
        self._tickets.add(ticket)
        future = self._pool.submit(copy_context().run, work, ticket)
        if use is not None:
            use.running = future
        future.add_done_callback(lambda future: self._ended(ticket, run=not future.cancelled()))
        try:
            return await asyncio.wrap_future(future)
        except (Stopped, asyncio.CancelledError) as exc:
            task = asyncio.current_task()
            if isinstance(exc, asyncio.CancelledError) and task and task.cancelling():
                raise  # cancelled by the caller, not by the shutdown of the pool
            raise DatabaseError(_CLOSING) from None
        finally:
            ticket.stop()

    def _ended(self, ticket: Ticket, *, run: bool) -> None:
        self._tickets.discard(ticket)
        if run:  # A call cancelled before it had a thread does not show that the engine responds.
            self._ended_at = time.monotonic()

    def _watch(self, stuck: Callable[[], None]) -> None:
        while not self._closing.wait(STUCK_SECONDS / 12):
            overdue = max((ticket.overdue for ticket in tuple(self._tickets)), default=0.0)
            if min(overdue, time.monotonic() - self._ended_at) > STUCK_SECONDS:
                log.critical(
                    "no call has ended for %.0f s: the engine is stuck\n%s",
                    time.monotonic() - self._ended_at,
                    jvm.waiting_threads(),
                )
                stuck()
                return

    # The methods below run in a thread of the pool.

    def _start(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise DatabaseError(
                f"the data directory {self._directory} cannot be created: {exc.strerror}"
            ) from exc
        self._space.prepare()
        jvm.start(heap_mb=self._heap(), crash_directory=self._directory, options=self._jvm_options)
        wrap_classes()
        self._engine = _Engine()

    def _heap(self) -> int:
        needed = jvm.needed_heap_mb(stored_vectors(self._directory))
        if self._heap_mb is None:
            return jvm.heap_mb_for(needed)
        if needed > self._heap_mb:
            log.warning(
                "the vectors of the databases need a heap of about %d MiB, arcadedb_heap is %d MiB:"
                " queries may be slow, and writes may fail",
                needed,
                self._heap_mb,
            )
        return self._heap_mb

    def _open_existing(self) -> None:
        """Open all databases, so that their first calls need not wait."""
        for name in self._stored():
            try:
                self._opened(name)
            except DatabaseError as exc:
                log.warning("%s", exc)

    def _query(self, name: str, statement: Statement, ticket: Ticket) -> Rows:
        with self._ready(name, [statement], ticket) as database, self._translated():
            return self._run(database, database.java.query, statement, effect="")

    def _measure(self, name: str, ticket: Ticket) -> int:
        with self._ready(name, [], ticket) as database, self._translated():
            return int(database.java.getSize())

    def _find(self, asked: IndexSearch, ticket: Ticket) -> Mapping[str, Any]:
        conditions = [c for each in asked.searches.values() if (c := condition_of(asked, each))]
        with self._ready(asked.database, conditions, ticket) as database, self._translated():
            return database.searcher.answer(asked, partial(self._results, database.java.query))

    def _command(self, name: str, statements: Sequence[Statement], ticket: Ticket) -> list[Rows]:
        if wait := self._space.check(statements):
            ticket.pause(wait)
        with self._ready(name, statements, ticket) as database:
            rows = self._transaction(database, statements, ticket)
            if dropped := dropped_types(" ".join(each.text for each in statements)):
                close_dropped_graphs(name, database.java, dropped)
            return rows

    @contextmanager
    def _ready(self, name: str, statements: Sequence[Statement], ticket: Ticket) -> Iterator[_Open]:
        """Ready a database and this thread for statements, and yield the database.

        During the block the database is the only one of the thread, and the statements can be
        stopped. Afterwards nothing of the call is left in the thread: :mod:`.thread_contexts`.
        """
        ticket.check()
        engine = self._running_engine()
        with self._translated():
            for statement in statements:
                engine.guard.check(statement)
        database = engine.open.get(name) or self._opened(name)
        with (
            ticket.running(engine.registry, engine.no_client, name),
            engine.contexts.only(database.java),
        ):
            yield database

    def _running_engine(self) -> _Engine:
        if self._engine is None:
            raise DatabaseError("the engine was not started")
        return self._engine

    def _transaction(
        self, database: _Open, statements: Sequence[Statement], ticket: Ticket
    ) -> list[Rows]:
        """Run statements in a transaction, which :meth:`_ready` rolls back if one fails."""
        java = database.java
        with self._translated():
            java.begin()
            transaction = java.getTransactionIfExists()
            commits = transaction.getCommitCount()
        try:
            with self._translated():
                rows = [
                    self._run(database, java.command, each, effect="; nothing was written")
                    for each in statements
                ]
                ticket.check()
                java.commit()
            return rows
        except Conflict as exc:
            if self._running_engine().transaction.isPartiallyCommitted(transaction, commits):
                raise DatabaseError(
                    f"some batches were committed before a conflict with a concurrent write: {exc}"
                ) from exc
            raise

    def _run(
        self, database: _Open, execute: Callable[..., Any], statement: Statement, *, effect: str
    ) -> Rows:
        results = self._results(execute, statement)
        return database.writer.rows(results, self._max_rows, effect)

    def _results(self, execute: Callable[..., Any], statement: Statement) -> Any:
        given = []
        if statement.params:
            to_java = self._running_engine().parameters.to_java
            given.append(to_java(statement.params, statement.numbers))
        return execute(statement.language, statement.text, *given)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except jpype.JException as exc:
            raise translate(exc, self._running_engine().need_retry) from exc

    def _opened(self, name: str) -> _Open:
        """Return a database, opened by the first call."""
        engine = self._running_engine()
        with self._opening:
            if name in engine.open:
                return engine.open[name]
            if not _is_database(self._directory / name):
                raise DatabaseError(
                    f"no database named {name!r}: create it with arcade-db-create;"
                    " arcade-db-list lists the existing ones"
                )
            started = time.monotonic()
            with self._opening_errors(), engine.contexts.none_left():
                java = open_repaired(engine.factory, self._directory / name)
                log.info("opened %s in %.2f s", name, time.monotonic() - started)
                return self._keep(name, java, warm_up=self._warm_up)

    def _add(self, name: str) -> None:
        engine = self._running_engine()
        with self._opening:
            if _is_database(self._directory / name):
                raise DatabaseError(f"database {name!r} already exists")
            self._space.check([])
            with self._opening_errors(), engine.contexts.none_left():
                java = engine.factory(str(self._directory / name)).create()
                java.command("sql", f'ALTER DATABASE `arcadedb.dateTimeFormat` "{DATETIME_FORMAT}"')
                self._keep(name, java, warm_up=False)

    @contextmanager
    def _opening_errors(self) -> Iterator[None]:
        if self._closing.is_set():
            raise DatabaseError(_CLOSING)
        try:
            yield
        except jpype.JException as exc:
            text = " ".join(messages(exc))
            if "lock" in text.lower():
                raise DatabaseError(
                    f"a database in {self._directory} is in use by another process: stop that"
                    " process, or use one database ability for both"
                ) from exc
            raise DatabaseError(
                f"a database in {self._directory} cannot be opened: {text}"
            ) from exc

    def _keep(self, name: str, java: Any, *, warm_up: bool) -> _Open:
        confine(name, java)
        writer = ResultWriter(java, max_bytes=self._max_bytes, threads=self.concurrency)
        run = secrets.token_hex(8)
        java.setGlobalVariable(RUN, run)
        searcher = IndexSearcher(java, max_bytes=self._max_bytes, run=run)
        opened = self._running_engine().open[name] = _Open(java, writer, searcher)
        if warm_up:
            warmer = threading.Thread(target=self._warm, args=(name, java), daemon=True)
            self._warmers.append(warmer)
            warmer.start()
        return opened

    def _warm(self, name: str, java: Any) -> None:
        """Load the vector indexes of a database, in a thread of its own."""
        try:
            warm_vector_indexes(name, java, self._indexes, self._closing)
        finally:
            self._running_engine().contexts.detach()

    def _stored(self) -> list[str]:
        return [path.name for path in self._directory.iterdir() if _is_database(path)]

    def _close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for warmer in self._warmers:
            warmer.join(max(0.0, deadline - time.monotonic()))
        self._warmers.clear()
        while self._engine is not None and self._engine.open:
            name, database = self._engine.open.popitem()
            try:
                database.java.close()
            except jpype.JException as exc:
                log.error("closing %s failed: %s", name, " ".join(messages(exc)))


def _is_database(path: Path) -> bool:
    return (path / "schema.json").is_file() or (path / "configuration.json").is_file()
