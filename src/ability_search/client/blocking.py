"""The tools as functions. Written by scripts/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from ability_search.client.following import Advance
from ability_search.client.runner import Runner
from ability_search.client.search import DocumentLike, SearchClient
from ability_search.client.values import (
    CollectionInfo,
    Collections,
    FileOptions,
    Hits,
    IndexOptions,
    Neighbours,
    QueryOptions,
    ReindexOptions,
)
from ability_search.wire import inputs, results


class BlockingSearchClient:
    """:class:`SearchClient` for use with ``with``, also where a loop is running (notebooks).

    Its methods wait for those of the same name, on a loop in a thread of its own, and raise what
    they raise.

    Args:
        url: As of :class:`SearchClient`, like the others.
        networks: KADI networks to join.
        timeout: Seconds to wait for an answer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        networks: Sequence[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._client = SearchClient(url, networks=networks, timeout=timeout)
        self._runner = Runner()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Connect; nothing if it is connected."""
        self._runner.start()
        try:
            self._runner.run(self._client.open())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def close(self) -> None:
        """Disconnect; nothing if it is not connected."""
        if self._runner.running:
            try:
                self._runner.run(self._client.close())
            finally:
                self._runner.stop()

    def query(
        self,
        collection: str | Sequence[str],
        query: str,
        *,
        limit: int = 10,
        mode: inputs.Mode = "hybrid",
        filter: Mapping[str, Any] | None = None,
        **options: Unpack[QueryOptions],
    ) -> Hits:
        """Search one collection, several, or all of them (``*``)."""
        return self._runner.run(
            self._client.query(collection, query, limit=limit, mode=mode, filter=filter, **options)
        )

    def similar(
        self,
        collection: str,
        chunk_id: str,
        *,
        limit: int = 10,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
    ) -> Neighbours:
        """The chunks that are most like a chunk."""
        return self._runner.run(
            self._client.similar(
                collection, chunk_id, limit=limit, filter=filter, min_score=min_score
            )
        )

    def index(
        self,
        collection: str,
        documents: Iterable[DocumentLike],
        *,
        progress: Advance | None = None,
        **options: Unpack[IndexOptions],
    ) -> results.IndexResult:
        """Make documents findable, in as many calls as their size asks for.

        Args:
            collection: Created if need be.
            documents: Consumed as they are sent.
            progress: Called with the documents done, those known of, and the stage.
            options: Of all the calls.

        Returns:
            The sum of all calls. If one fails, what the ones before it stored stays.
        """
        return self._runner.run(
            self._client.index(collection, documents, progress=progress, **options)
        )

    def index_file(
        self,
        collection: str,
        path: str | Path,
        *,
        progress: Advance | None = None,
        **options: Unpack[FileOptions],
    ) -> results.IndexFileResult:
        """Index a file or a directory of the worker's machine."""
        return self._runner.run(
            self._client.index_file(collection, path, progress=progress, **options)
        )

    def reindex(
        self, collection: str, *, progress: Advance | None = None, **options: Unpack[ReindexOptions]
    ) -> results.ReindexResult:
        """Chunk and embed a collection anew from what it stores."""
        return self._runner.run(self._client.reindex(collection, progress=progress, **options))

    def delete(self, collection: str, source: str | None = None) -> results.DeleteResult:
        """Delete one source, or the whole collection."""
        return self._runner.run(self._client.delete(collection, source))

    def collections(self) -> Collections:
        """All collections with their statistics."""
        return self._runner.run(self._client.collections())

    def info(
        self,
        collection: str,
        *,
        limit: int = 1000,
        cursor: str | None = None,
        include: Sequence[inputs.Included] = (),
        map_points: int = 1000,
    ) -> CollectionInfo:
        """A collection and the first of its sources, in order; ``cursor`` goes on with a page.

        ``include`` adds what the tool would have to look at the chunks for.
        """
        return self._runner.run(
            self._client.info(
                collection, limit=limit, cursor=cursor, include=include, map_points=map_points
            )
        )

    def sources(self, collection: str) -> Iterator[str]:
        """The names of all sources, in order, read page by page."""
        return self._runner.each(self._client.sources(collection))

    def call(self, tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        """Call any tool of the network, with its wire names."""
        return self._runner.run(self._client.call(tool, tool_input))
