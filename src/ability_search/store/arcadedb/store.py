"""The store in ArcadeDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ability_search.collection import Collection
from ability_search.store.arcadedb.collections import CollectionSql
from ability_search.store.arcadedb.copies import CopySql
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.index import IndexSql
from ability_search.store.arcadedb.jobs import JobSql
from ability_search.store.arcadedb.overview import OverviewSql
from ability_search.store.arcadedb.search import TermsArm, VectorArm, candidates
from ability_search.store.records import Columns, Read, Row, Search, VectorSearch


class ArcadeStore(
    CollectionSql,
    IndexSql,
    CopySql,
    JobSql,
    OverviewSql,
):
    """A :class:`~ability_search.store.port.Store` in an ArcadeDB database."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
    ) -> Read[Mapping[str, Sequence[Row]]]:
        """Run searches without filters and columns; until SearchSql is there."""
        arms = [
            VectorArm(each.name, each.vector, each.limit, each.beam, each.exact)
            if isinstance(each, VectorSearch)
            else TermsArm(each.name, each.terms.ids, each.terms.weights, each.limit)
            for each in searches
        ]
        statement: Statement = candidates(collection.name, collection.type, arms, first=first)
        answer = await self.current_read(collection.type, statement)
        return Read(
            collection,
            {
                each.name: [Row(r["rid"], r["chunkId"], r["score"]) for r in answer[each.name]]
                for each in searches
            },
        )
