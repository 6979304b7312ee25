"""A chunk type in an embedded database that answers filters, beside the Python predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arcadedb_embedded import Database, create_database

from ability_search.filters.facets import facets_of
from ability_search.filters.predicate import matches
from ability_search.filters.tree import Filter
from ability_search.store.arcadedb.core import Parameters
from ability_search.store.arcadedb.filter_sql import to_sql
from kadi_localnet.database import jvm

TYPE = "Chunk_x_1"
Rows = Sequence[Mapping[str, Any]]


class Engine:
    """A collection's chunk type in an embedded database, filled anew for each question."""

    def __init__(self, database: Database) -> None:
        self.database = database
        for statement in (
            "CREATE VERTEX TYPE Chunk",
            "CREATE PROPERTY Chunk.source STRING",
            "CREATE PROPERTY Chunk.title STRING",
            "CREATE PROPERTY Chunk.kind STRING",
            "CREATE PROPERTY Chunk.createdAt LONG",
            "CREATE PROPERTY Chunk.metadata MAP",
            "CREATE PROPERTY Chunk.facets LIST OF STRING",
            f"CREATE VERTEX TYPE `{TYPE}` EXTENDS Chunk BUCKETS 1",
            f"CREATE INDEX ON `{TYPE}` (source) NOTUNIQUE",
            f"CREATE INDEX ON `{TYPE}` (facets BY ITEM) NOTUNIQUE",
        ):
            database.command("sql", statement)

    def fill(self, rows: Rows) -> None:
        stored = [
            {**row, "number": number, "facets": facets_of(row.get("metadata") or {})}
            for number, row in enumerate(rows)
        ]
        with self.database.transaction():
            self.database.command("sql", f"DELETE FROM `{TYPE}`")
            self.database.command("sql", f"INSERT INTO `{TYPE}` CONTENT :rows", {"rows": stored})

    def numbers(self, filter: Filter) -> list[int]:
        return sorted(row["number"] for row in self._query("SELECT number", filter))

    def plan(self, filter: Filter) -> str:
        [explained] = self._query("EXPLAIN SELECT @rid", filter)
        return str(explained["executionPlanAsString"])

    def _query(self, selecting: str, filter: Filter) -> list[dict[str, Any]]:
        params = Parameters()
        text = f"{selecting} FROM `{TYPE}` WHERE {to_sql(filter, params)}"
        found: list[dict[str, Any]] = self.database.query("sql", text, dict(params)).to_list()
        return found


@contextmanager
def filter_engine_in(directory: Path) -> Iterator[Engine]:
    jvm.start(heap_mb=512, crash_directory=directory)
    with create_database(str(directory / "database")) as database:
        yield Engine(database)


def numbers_by_predicate(filter: Filter, rows: Rows) -> list[int]:
    return [number for number, row in enumerate(rows) if matches(filter, row)]
