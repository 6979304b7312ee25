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
    """A :class:`SearchClient` without ``await``; it also works in notebooks.

    Example:
        with BlockingSearchClient() as search:
            note = {"source": "n1", "title": "Backups", "content": "They run at two at night."}
            search.index("notes", [note])
            found = search.query("notes", "when is the data saved?")
            print(found.results[0].content)

    Each method runs the method of the same name on an event loop in a thread, waits for it, and
    raises what that raises.

    Args:
        url: Address of the broker, as for :class:`SearchClient`.
        networks: KADI networks to join; the configured ones if not given.
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
        """Connect; does nothing if it is connected."""
        self._runner.start()
        try:
            self._runner.run(self._client.open())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def close(self) -> None:
        """Disconnect; does nothing if it is not connected."""
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
        """Search one collection, several, or all of them (``*``).

        Example:
            found = search.query("notes", "when is the data saved?", limit=3)
            for hit in found.results:
                print(hit.score, hit.source, hit.content)
        """
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
        """Find the chunks that are nearest to a chunk.

        Example:
            found = search.query("notes", "when is the data saved?")
            alike = search.similar("notes", found.results[0].chunk_id)
            print([hit.source for hit in alike.results])
        """
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
        """Index documents, in as many calls as their size requires.

        Example:
            documents = [{"source": "n2", "title": "Pump", "content": "It is replaced in May."}]
            report = search.index("notes", documents)
            print(report.added, report.unchanged, report.failed)

        Args:
            collection: Name of the collection; created on first use.
            documents: Any iterable; consumed as the documents are sent.
            progress: Called with the documents done, the documents known so far, and the stage.
            options: Options of every call.

        Returns:
            The sum of all calls. If a call fails, what the calls before it stored stays.

        Raises:
            ValueError: if there are no documents.
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
        """Index a file or a directory of the worker's machine.

        Example:
            report = search.index_file("manuals", "docs", include=["*.md"])
            print(report.files, report.skipped)
        """
        return self._runner.run(
            self._client.index_file(collection, path, progress=progress, **options)
        )

    def reindex(
        self, collection: str, *, progress: Advance | None = None, **options: Unpack[ReindexOptions]
    ) -> results.ReindexResult:
        """Chunk and embed a collection anew from what it stores.

        Example:
            report = search.reindex("notes", max_tokens=200)
            print(report.chunks)
        """
        return self._runner.run(self._client.reindex(collection, progress=progress, **options))

    def delete(self, collection: str, source: str | None = None) -> results.DeleteResult:
        """Delete one source, or the whole collection.

        Example:
            report = search.delete("notes", "n1")
            print(report.deleted)
        """
        return self._runner.run(self._client.delete(collection, source))

    def collections(self) -> Collections:
        """List all collections with their statistics.

        Example:
            for each in (search.collections()).collections:
                print(each.name, each.sources, each.chunks)
        """
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
        """Describe a collection and list its first sources, in order.

        Example:
            info = search.info("notes")
            print(info.chunks, info.embedded_percent, info.sources)

        ``cursor`` continues with the next page of sources. ``include`` adds statistics that the
        tool has to read the chunks for.
        """
        return self._runner.run(
            self._client.info(
                collection, limit=limit, cursor=cursor, include=include, map_points=map_points
            )
        )

    def sources(self, collection: str) -> Iterator[str]:
        """Yield the names of all sources, in order; reads them page by page.

        Example:
            for source in search.sources("notes"):
                print(source)
        """
        return self._runner.each(self._client.sources(collection))

    def call(self, tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        """Call any tool of the network, with the names of its fields on the wire.

        Example:
            found = search.call("search-query", {"collection": "notes", "query": "backup"})
            print(found["count"])
        """
        return self._runner.run(self._client.call(tool, tool_input))
