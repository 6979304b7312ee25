"""The store in ArcadeDB, with the reads that copy whole collections."""

from __future__ import annotations

from ability_search.store.arcadedb.collections import CollectionSql
from ability_search.store.arcadedb.index import IndexSql
from ability_search.store.arcadedb.jobs import JobSql
from ability_search.store.arcadedb.read import ReadSql
from ability_search.store.arcadedb.retrieval import SearchSql
from ability_search.store.arcadedb.session_records import SessionSql
from ability_search.store.arcadedb.usage import UsageSql


class ArcadeStore(
    CollectionSql,
    IndexSql,
    SearchSql,
    ReadSql,
    JobSql,
    UsageSql,
    SessionSql,
):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database."""
