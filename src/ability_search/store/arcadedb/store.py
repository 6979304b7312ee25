"""The store in ArcadeDB."""

from __future__ import annotations

from ability_search.store.arcadedb.collections import CollectionSql
from ability_search.store.arcadedb.index import IndexSql
from ability_search.store.arcadedb.jobs import JobSql


class ArcadeStore(
    CollectionSql,
    IndexSql,
    JobSql,
):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database."""
