"""The store port: what indexing and search need of a database, in their own words.

Every method raises :class:`~ability_search.errors.DatabaseUnavailable` if the store does not
answer. Reads are retried by the store where that helps. Writes are idempotent unless they say
otherwise, and are retried by the store on conflicts with other writers.

A store answers as if it were empty if nothing was ever stored in it. A method that takes a
generation raises :class:`~ability_search.errors.GenerationGone` if that generation was dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ability_search.collection import Collection
from ability_search.store.records import Ahead, Replaced, Replacement, Search, Searched
from ability_search.store.values import (
    Change,
    Columns,
    Committed,
    Count,
    Counted,
    Page,
    Patch,
    Read,
)


class Store(Protocol):
    """Everything that a worker stores: records, generations, documents and chunks."""

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        """Answer several asks in one round trip: pages of selections, and counts.

        What does not fit into one message is read in several, and then in smaller pages; see
        :mod:`.pages` for reading them all.

        Raises:
            GenerationGone: if the generation of one of the collections was dropped.
            TooLarge: if a single item does not fit into a message.
        """

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Make all changes in one transaction, in order, or none.

        A change whose condition does not hold refuses all of them. A commit is repeated on
        conflicts with other writers. If the answer is lost it is repeated too, and is done if what
        refuses the repetition is that it was done before; unless it has an :class:`Add`.

        Who read a record as expired, and puts one with its revision, is the only one to do so: each
        renewal of a lease is a new revision.

        Raises:
            DatabaseUnavailable: if the store remains unavailable; whether the transaction was
                committed is then unknown.
            TooLarge: if the changes do not fit into a message.
        """

    async def create_generation(self, collection: Collection) -> None:
        """Create an empty generation; harmless if it exists."""

    async def generations(self) -> list[str]:
        """Return all stored generations."""

    async def drop_generation(self, generation: str) -> None:
        """Drop a generation with everything in it, and the records of its scope."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        ahead: Ahead | None = None,
        consistent: bool = True,
    ) -> Searched:
        """Run all searches of a query in one round trip.

        Args:
            collection: The collection; its generation is searched.
            searches: Searches with distinct names. Those of kinds return nothing if the
                generation has none.
            columns: Columns to read of every row.
            ahead: The chunks of which rows also get their texts; a store may leave them out.
            consistent: Whether a commit that is being indexed is waited for, so that an index finds
                either what it replaces or the replacement.

        Returns:
            The rows of each search, equal ones by chunkId; with ``heads``, those of a head come
            before those that only a greater limit finds.

        Raises:
            StatementRefused: if the store cannot run this combination; single searches may work.
        """

    async def replace(self, collection: Collection, replacement: Replacement) -> Replaced | None:
        """Replace the contents of some sources in one transaction.

        Duplicates in other sources whose stand-in is replaced get another: the new chunk of the
        same vector key, or else the one nearest to the first of them by chunkId if that source's
        ``dedup_threshold`` allows it; or, if that is a duplicate, its stand-in. Else the first of
        them returns to the indexes and stands in for the others. Counts and revision of the record
        change with it.

        Returns:
            ``None`` if the generation is gone, the average length that the weights assume is no
            longer that of the collection, or a stand-in has changed; nothing is written then.

        Raises:
            DatabaseUnavailable: if the store remains unavailable; whether the transaction was
                committed is then unknown.
        """

    async def patch(self, collection: Collection, patches: Sequence[Patch]) -> None:
        """Change fields of chunks; those that are gone or have changed are left out."""

    async def settle(self, collection: Collection) -> Collection:
        """Build what searches need and remove what writers left behind; return the new record.

        It may take minutes, and may be repeated at any time.
        """
