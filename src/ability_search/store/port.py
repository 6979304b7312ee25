"""The store port: what indexing and search need of a database, in their own words.

Every method raises :class:`~ability_search.errors.DatabaseUnavailable` if the store does not
answer. Reads are retried by the store where that helps. Writes are idempotent unless they say
otherwise, and are retried by the store on conflicts with other writers.

A store answers as if it were empty if nothing was ever stored in it. A method that takes a
generation raises :class:`~ability_search.errors.GenerationGone` if that generation was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ability_search.collection import Collection
from ability_search.filters.tree import Filter
from ability_search.store import values
from ability_search.store.records import (
    ChunkRecord,
    ChunkScores,
    ChunkText,
    ChunkVector,
    Columns,
    GraphAnswer,
    GraphRequest,
    Link,
    MapPoint,
    Neighbour,
    OverviewAnswer,
    OverviewRequest,
    Passage,
    Read,
    Replaced,
    Replacement,
    Row,
    Search,
    SourceRecord,
    VectorCheck,
    VectorPlaces,
    WeightedChunk,
)
from ability_search.store.values import Change, Committed, Count, Counted, Page


class RecordStore(Protocol):
    """Small records, and transactions of changes to them."""

    async def read(self, asks: Sequence[values.Read | Count]) -> list[Page | Counted]:
        """Answer several questions in one round trip.

        A page may have fewer items than its limit, and go on, because of the size of messages.

        Raises:
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


class GenerationStore(Protocol):
    """Generations of collections."""

    async def create_generation(self, collection: Collection) -> None:
        """Create an empty generation; harmless if it exists."""

    async def generations(self) -> list[str]:
        """Return all stored generations."""

    async def drop_generation(self, generation: str) -> None:
        """Drop a generation with everything in it, and the records of its scope."""


class SearchStore(Protocol):
    """Retrieval of candidates and of what surrounds them."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
    ) -> Read[Mapping[str, Sequence[Row]]]:
        """Run all searches of a query in one round trip.

        Args:
            collection: The collection; its generation is searched.
            searches: Searches with distinct names. Those of kinds return nothing if the
                generation has none.
            columns: Columns to read of every row. The rows of a search by a vector have no column
                for the cosine to that very vector: it is their score.
            first: Number of chunks of each search whose rows also get ``terms``, ``weights`` and
                ``embedding``, in every search that finds them.

        Returns:
            Rows by the name of the search, best first, equal ones by chunkId; with ``heads``, those
            of a head come before those that only a greater limit finds. They are consistent: a
            commit that is being indexed is waited for.

        Raises:
            StatementRefused: if the store cannot run this combination; single searches may work.
        """

    async def chunks(
        self, generation: str, rids: Sequence[str], *, compared: Sequence[str] = ()
    ) -> list[ChunkText]:
        """Return chunks by record id, in any order; chunks that are gone are left out.

        With ``compared``, record ids, each has its cosines to these chunks, in their order.
        """

    async def chunk(self, collection: Collection, chunk_id: str) -> Read[ChunkText | None]:
        """Return a chunk with its embedding."""

    async def embeddings(self, generation: str, rids: Sequence[str]) -> dict[str, Sequence[float]]:
        """Return the embeddings of chunks, by record id; those without one are left out."""

    async def passages(
        self, generation: str, chunk_ids: Sequence[str], filter: Filter | None
    ) -> list[Passage]:
        """Return the texts of chunks by chunkId, in any order; those that are gone are left out."""

    async def best_chunks(
        self,
        generation: str,
        sources: Sequence[str],
        columns: Columns,
        filter: Filter | None,
        *,
        by: str,
        chunk_ids: Sequence[str] = (),
    ) -> tuple[dict[str, Row], dict[str, Row]]:
        """Return the best chunk of each source, by source, and the given chunks, by chunkId.

        The column ``by`` of ``columns`` decides, and is the score; of equal chunks the first is
        best. Chunks that are gone, duplicates or excluded by the filter are left out.
        """

    async def graph(self, generation: str, request: GraphRequest) -> GraphAnswer:
        """Return the best chunk of each source that is linked to others, and given chunks.

        Links are followed in both directions.
        """

    async def links(self, generation: str, sources: Sequence[str], *, limit: int) -> list[Link]:
        """Return the strongest links from and to these sources, the strongest first.

        The generation must have links.
        """


class IndexStore(Protocol):
    """Documents and chunks of generations."""

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

    async def content_hashes(
        self, collection: Collection, sources: Sequence[str]
    ) -> Read[Mapping[str, str]]:
        """Return the content hash of each of these sources that is stored."""

    async def sources(
        self,
        generation: str,
        *,
        after: str,
        limit: int,
        files: bool = False,
        children: bool = True,
    ) -> list[str]:
        """Return the names of sources that count greater than ``after``, in order.

        With ``files``, they are those read from a file, whether or not they count; without
        ``children``, the documents of other documents are left out.
        """

    async def documents_of(self, generation: str, sources: Sequence[str]) -> list[str]:
        """Return the sources of the documents of these sources, derived kinds included."""

    async def source_records(
        self, generation: str, *, after: str, limit: int
    ) -> list[SourceRecord]:
        """Return source records greater than ``after``, in order, without generated kinds.

        There may be fewer than ``limit`` although others follow.

        Raises:
            TooLarge: if one record does not fit into one message.
        """

    async def source_records_named(
        self, generation: str, sources: Sequence[str]
    ) -> list[SourceRecord]:
        """Return the records of these sources, in any order.

        Raises:
            TooLarge: if they do not fit into one message.
        """

    async def source_passages(
        self, generation: str, source: str, *, kinds: bool = False
    ) -> list[Passage]:
        """Return the parts of a document's text, in chunk order."""

    async def compare_sources(
        self, generation: str, other: str, *, after: str, limit: int
    ) -> tuple[list[tuple[str, str]], dict[str, str | None]]:
        """Return sources of a generation with their content hashes, and their origins in another.

        The first list is in order of the source, greater than ``after``, without generated kinds.
        """

    async def count_sources(self, generation: str) -> tuple[int, int]:
        """Return the number of sources that count, and the chunks that all record."""

    async def check_vectors(
        self, generation: str, *, kinds: bool, dimensions: int, after: str, limit: int
    ) -> VectorCheck:
        """Check the vectors of a page of chunks greater than ``after``, in order."""

    async def sample_chunks(self, generation: str, *, limit: int) -> list[WeightedChunk]:
        """Return a random choice of indexed chunks, always the same, with their embeddings."""

    async def probe_chunks(
        self, generation: str, *, newest: int, others: int, after: str
    ) -> list[WeightedChunk]:
        """Return the indexed chunks stored last, and others whose vector key is at least ``after``.

        ``after`` is 32 hexadecimal digits; random digits give a random choice.
        """

    async def nearest(
        self,
        generation: str,
        vectors: Sequence[Sequence[float]],
        *,
        limit: int,
        beam: int,
        exact: bool,
    ) -> list[list[Neighbour]]:
        """Return the indexed chunks nearest to each vector, nearest first."""

    async def vector_places(
        self, model: str, record: str, *, dimensions: int | None, limit: int
    ) -> VectorPlaces:
        """Return the generations that may hold vectors of ``model`` with these dimensions.

        Args:
            model: The embedding model.
            record: Name of the record that wants vectors; it may be under construction.
            dimensions: ``None`` for any.
            limit: Maximum number of other collections, the last changed first.
        """

    async def stored_vectors(
        self, places: Sequence[tuple[str, bool]], keys: Sequence[str]
    ) -> list[dict[str, Sequence[float]]]:
        """Return for each place the stored vectors by vector key."""

    async def outdated_weights(
        self, generation: str, *, kinds: bool, average_length: float, after: str, limit: int
    ) -> list[WeightedChunk]:
        """Return chunks whose weights assume another average length, by chunkId.

        It may read all chunks.

        Args:
            generation: The generation.
            kinds: Whether the chunks of derived kinds.
            average_length: The average length that weights should assume.
            after: A chunkId; those behind it are returned.
            limit: Maximum number of chunks.
        """

    async def set_weights(
        self,
        generation: str,
        *,
        kinds: bool,
        average_length: float,
        changes: Sequence[WeightedChunk],
    ) -> None:
        """Write new weights. A chunk that became a duplicate, or no longer is one, is left out."""

    async def set_scores(self, generation: str, scores: Sequence[ChunkScores]) -> None:
        """Write scores of chunks; chunks that are gone are skipped."""

    async def build_graph(self, generation: str, *, kinds: bool, dimensions: int) -> None:
        """Build the vector graph, and return when it is complete."""

    async def discard_staged(self, *, before: int) -> None:
        """Delete parts of replacements that writers left behind before this time."""


class CopyStore(Protocol):
    """Reads of whole collections, for artifacts and overviews."""

    async def source_order(
        self, generation: str, *, after: str, limit: int
    ) -> list[tuple[str, int]]:
        """Return sources greater than ``after``, in order, with their places.

        Places are ascending in the order of storage, by which indexes decide between equal scores.
        """

    async def source_records_at(
        self, generation: str, places: Sequence[int]
    ) -> dict[int, SourceRecord]:
        """Return source records by their places; those that are gone are left out.

        Raises:
            TooLarge: if they do not fit into one message.
        """

    async def chunk_records(
        self, generation: str, sources: Sequence[str], *, kinds: bool, first: int, end: int
    ) -> list[ChunkRecord]:
        """Return the chunks ``first`` to ``end - 1`` of each source, in any order.

        Raises:
            TooLarge: if they do not fit into one message.
        """

    async def chunk_vectors(self, generation: str, *, after: str, limit: int) -> list[ChunkVector]:
        """Return indexed chunks greater than ``after`` with their vectors, by chunkId."""

    async def overview(
        self, collection: Collection, request: OverviewRequest
    ) -> Read[OverviewAnswer]:
        """Measure a collection."""

    async def map_points(
        self,
        collection: Collection,
        axes: Sequence[Sequence[float]],
        *,
        limit: int,
        indexed: int,
    ) -> Read[list[MapPoint]]:
        """Return a sample of the indexed chunks, always the same, with their cosines to axes."""


class Store(
    RecordStore,
    GenerationStore,
    SearchStore,
    IndexStore,
    CopyStore,
    Protocol,
):
    """Everything that a worker stores."""
