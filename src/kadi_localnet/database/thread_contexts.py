"""The contexts that the embedded engine keeps for each thread; a call leaves none behind.

The engine has a context for every database that a thread has used: its transactions, its user and
some buffers. A thread of a pool serves calls of all databases, so it collects their contexts, and
they are more than a cache:

* A record id that knows no database reads its record from the database of the thread: the only one
  with a context, or the one with a transaction, or of several the first in a hash map. The ids that
  a sparse vector index returns are of this kind, so a search could return a record of another
  database that had the same id, or find none.
* A transaction that was left open goes on in the next call of its database.
* A context keeps its database in memory.

So a call has a context of its database only, a new one, and leaves none. The engine's own server
does the same for each request. What else is kept for a thread:

* The running query, by which a call is stopped: :meth:`.Ticket.running` binds and unbinds it.
* The user: none is set here, so the engine checks no rights of its own.
* The terms with which records are compared (:mod:`.index_search`): each search sets its own.
* The bridge attaches a thread to the JVM with its first call to Java, as a daemon, which does not
  keep the process from ending, and never detaches it. So a thread that ends before its process does
  is detached (:meth:`ThreadContexts.detach`). Threads of the pool end with it.

Threads of the engine itself, such as those that score sparse vectors or build graphs, have the
context of the database that they work for while they do so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jpype

log = logging.getLogger(__name__)


class ThreadContexts:
    """The contexts of the current thread; the JVM must be running."""

    def __init__(self) -> None:
        self._contexts = jpype.JClass("com.arcadedb.database.DatabaseContext").INSTANCE
        self._thread = jpype.JClass("java.lang.Thread")

    @contextmanager
    def only(self, database: Any) -> Iterator[None]:
        """Use one database in this thread during the block, with no transaction at its begin.

        A transaction that is still open at the end of the block is rolled back.
        """
        self._contexts.removeCurrentThreadContexts()
        self._contexts.init(database)
        try:
            yield
        finally:
            self._leave(database)

    @contextmanager
    def none_left(self) -> Iterator[None]:
        """Remove all contexts of this thread after a block that opens or creates a database."""
        try:
            yield
        finally:
            self._contexts.removeCurrentThreadContexts()

    def detach(self) -> None:
        """Detach this thread from the JVM, as the last that it does."""
        self._contexts.removeCurrentThreadContexts()
        self._thread.detach()

    def _leave(self, database: Any) -> None:
        try:
            if database.isTransactionActive():
                database.rollbackAllNested()
        except jpype.JException as exc:
            log.error("a transaction was not rolled back: %s", exc.getClass().getSimpleName())
        finally:
            self._contexts.removeCurrentThreadContexts()
