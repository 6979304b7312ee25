"""The store in ArcadeDB."""

from __future__ import annotations

from ability_search.store.arcadedb.collections import CollectionSql
from ability_search.store.arcadedb.copies import CopySql
from ability_search.store.arcadedb.index import IndexSql
from ability_search.store.arcadedb.jobs import JobSql
from ability_search.store.arcadedb.overview import OverviewSql


class ArcadeStore(
    CollectionSql,
    IndexSql,
    JobSql,
    CopySql,
    OverviewSql,
):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database."""
