"""The asynchronous client: one method per tool."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import msgspec
from pydantic import BaseModel, ValidationError

from ability_search.bounded_batches import batches
from ability_search.client.tool_client import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    LONG_SECONDS,
    Advance,
    ToolClient,
    check_unicode,
    client_target,
)
from ability_search.client.tool_options import (
    FileOptions,
    IndexOptions,
    QueryOptions,
    ReindexOptions,
)
from ability_search.config.loader import load_settings
from ability_search.search.response import Hit, QueryResult, SimilarResult
from ability_search.tools import inputs, results
from ability_search.tools.table import BY_NAME
from kadi_client import RemoteError
from kadi_client.tools import validation_text

_SHOWN = 300
"""Characters of a hit's text shown in a table."""


class Hits(QueryResult):
    """Result of :meth:`SearchClient.query`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        degraded = f"; degraded: {self.degraded.reason}" if self.degraded else ""
        about = f"{self.count} hits for {self.query!r}, {self.mode}{degraded}"
        return _hits_table(about, self.results)


class Neighbours(SimilarResult):
    """Result of :meth:`SearchClient.similar`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        return _hits_table(f"{self.count} chunks like {self.source_chunk}", self.results)


class Collections(results.CollectionsResult):
    """Result of :meth:`SearchClient.collections`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        names = ("name", "chunks", "sources", "avg_tokens", "model", "updated_at")
        rows = [[_cell(getattr(each, name)) for name in names] for each in self.collections]
        return _table(f"{len(rows)} collections", names, rows)


_LONG = {"sources", "next_cursor"}


class CollectionInfo(results.CollectionInfoResult):
    """Result of :meth:`SearchClient.info`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        shown = self.model_dump(exclude=_LONG, exclude_none=True)
        rows = [[_cell(name), _cell(value)] for name, value in shown.items()]
        return _table(self.collection, ("", ""), rows)


def _hits_table(about: str, hits: Sequence[Hit]) -> str:
    rows = []
    for hit in hits:
        text = hit.content if len(hit.content) <= _SHOWN else hit.content[:_SHOWN] + " …"
        bar = f'<meter min="0" max="1" value="{hit.score:.4f}"></meter> {hit.score:.3f}'
        where = hit.source + (f" › {hit.breadcrumb}" if hit.breadcrumb else "")
        found = ", ".join(hit.matched_via)
        rows.append([bar, _cell(hit.title), _cell(where), _cell(text), _cell(found)])
    return _table(about, ("score", "title", "where", "content", "found by"), rows)


def _table(about: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; the cells must already be HTML."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(about)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return escape(f"{value:,}" if isinstance(value, int | float) else str(value))


R = TypeVar("R", bound=BaseModel)

DocumentLike = inputs.DocumentInput | Mapping[str, Any]

_PAGE = 1000
_OPEN_SECONDS = 10.0


class SearchClient:
    """A connection to the search ability of a KADI network.

    Example:
        async with SearchClient() as search:
            note = {"source": "n1", "title": "Backups", "content": "They run at two at night."}
            await search.index("notes", [note])
            found = await search.query("notes", "when is the data saved?")
            print(found.results[0].content)

    Every method calls the tool of the same name and returns its validated result. It raises

    - :class:`ToolError` if the tool reports a failure: ``str()`` is the message, ``hint`` a remedy,
      ``code`` one of the documented codes, ``retryable`` whether a retry may succeed,
    - :class:`pydantic.ValidationError` if the input is invalid, and :class:`InvalidInput` if a text
      has half a character, before anything is sent,
    - another :class:`kadi_client.KadiError` if there is no answer; the client reconnects by itself.

    Args:
        url: Address of the broker. Default: ``BROKER_URL``, the configuration files, or the stack
            running on this machine, in this order, as for the command line.
        networks: KADI networks to join. Default: the configured networks.
        timeout: Timeout of a call in seconds; for indexing it is :data:`LONG_SECONDS`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        networks: Sequence[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._url = url
        self._networks = networks
        self._timeout = timeout
        self._tools: ToolClient | None = None

    @classmethod
    def over(cls, tools: ToolClient, *, timeout: float = 60.0) -> Self:
        """Return a client on a connection that the caller opens and closes."""
        client = cls(timeout=timeout)
        client._tools = tools
        return client

    async def open(self) -> Self:
        """Connect; does nothing if it is connected.

        Raises:
            ConfigurationError: if the settings are invalid.
            KadiError: if the broker cannot be reached.
        """
        if self._tools is None:
            settings = load_settings(os.environ, Path.cwd())
            tools = ToolClient(
                settings,
                client_target(settings, os.environ, self._url),
                name="search-client",
                networks=self._networks,
                open_timeout=_OPEN_SECONDS,
            )
            await tools.connection.open()
            self._tools = tools
        return self

    async def close(self) -> None:
        """Disconnect."""
        tools, self._tools = self._tools, None
        if tools is not None:
            await tools.connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def query(
        self,
        collection: str | Sequence[str],
        query: str,
        *,
        limit: int = 10,
        mode: inputs.Mode = "hybrid",
        filter: Mapping[str, Any] | None = None,
        **options: Unpack[QueryOptions],
    ) -> Hits:
        """Search one collection, several, or all (``*``).

        Example:
            found = await search.query("notes", "when is the data saved?", limit=3)
            for hit in found.results:
                print(hit.score, hit.source, hit.content)
        """
        return await self._call(
            "search-query",
            Hits,
            collection=collection if isinstance(collection, str) else list(collection),
            query=query,
            limit=limit,
            mode=mode,
            filter=filter,
            **options,
        )

    async def similar(
        self,
        collection: str,
        chunk_id: str | None = None,
        *,
        source: str | None = None,
        limit: int = 10,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
    ) -> Neighbours:
        """Find the nearest neighbours of a chunk, or of a source.

        Example:
            found = await search.query("notes", "when is the data saved?")
            alike = await search.similar("notes", found.results[0].chunk_id)
            print([hit.source for hit in alike.results])
        """
        return await self._call(
            "search-similar",
            Neighbours,
            collection=collection,
            chunk_id=chunk_id,
            source=source,
            limit=limit,
            filter=filter,
            min_score=min_score,
        )

    async def index(
        self,
        collection: str,
        documents: Iterable[DocumentLike],
        *,
        progress: Advance | None = None,
        **options: Unpack[IndexOptions],
    ) -> results.IndexResult:
        """Index documents, in several calls if needed.

        Example:
            documents = [{"source": "n2", "title": "Pump", "content": "It is replaced in May."}]
            report = await search.index("notes", documents)
            print(report.added, report.unchanged, report.failed)

        Args:
            collection: Name of the collection; created on first use.
            documents: Any iterable; consumed lazily, as the documents are sent.
            progress: Called with the documents done, the documents known so far, and the stage.
            options: Options of every call.

        Returns:
            The sum of all calls. If a call fails, documents indexed by earlier calls stay indexed.

        Raises:
            ValueError: if there are no documents.
        """
        total: results.IndexResult | None = None
        limits = self._opened.settings.limits
        for batch in batches(
            (_json(inputs.DocumentInput.model_validate(each)) for each in documents),
            lambda document: len(msgspec.json.encode(document)),
            most=min(BATCH_DOCUMENTS, limits.batch_documents),
            most_bytes=min(BATCH_BYTES, limits.batch_bytes),
        ):
            answer = await self._call(
                "search-index",
                results.IndexResult,
                progress=progress,
                before=total.documents if total else 0,
                collection=collection,
                documents=batch,
                **options,
            )
            total = answer if total is None else _sum(total, answer)
        if total is None:
            raise ValueError("documents: expected at least one")
        return total

    async def index_file(
        self,
        collection: str,
        path: str | Path,
        *,
        progress: Advance | None = None,
        **options: Unpack[FileOptions],
    ) -> results.IndexFileResult:
        """Index a file or a directory on the worker's machine.

        Example:
            report = await search.index_file("manuals", "docs", include=["*.md"])
            print(report.files, report.skipped)
        """
        return await self._call(
            "search-index-file",
            results.IndexFileResult,
            progress=progress,
            collection=collection,
            path=str(path),
            **options,
        )

    async def reindex(
        self, collection: str, *, progress: Advance | None = None, **options: Unpack[ReindexOptions]
    ) -> results.ReindexResult:
        """Chunk and embed a collection again from its stored texts.

        Example:
            report = await search.reindex("notes", max_tokens=200)
            print(report.chunks)
        """
        tool, returns = "search-reindex", results.ReindexResult
        return await self._call(tool, returns, progress=progress, collection=collection, **options)

    async def delete(
        self, collection: str, source: str | None = None, *, sources: Sequence[str] | None = None
    ) -> results.DeleteResult:
        """Delete one source, several of them, or the whole collection.

        Example:
            report = await search.delete("notes", "n1")
            print(report.deleted)
            await search.delete("notes", sources=["n2", "n3"])
        """
        return await self._call(
            "search-delete",
            results.DeleteResult,
            collection=collection,
            source=source,
            sources=sources,
        )

    async def collections(self) -> Collections:
        """List all collections with their statistics.

        Example:
            for each in (await search.collections()).collections:
                print(each.name, each.sources, each.chunks)
        """
        return await self._call("search-collections", Collections)

    async def info(
        self,
        collection: str,
        *,
        limit: int = 1000,
        cursor: str | None = None,
        children: bool = True,
    ) -> CollectionInfo:
        """Describe a collection and list a page of its sources, in order.

        Example:
            info = await search.info("notes")
            print(info.chunks, info.embedded_percent, info.sources)

        ``cursor`` continues with the next page of sources. Without ``children``, sources that
        belong to another one are left out.
        """
        return await self._call(
            "search-collection-info",
            CollectionInfo,
            collection=collection,
            limit=limit,
            cursor=cursor,
            children=children,
        )

    async def sources(self, collection: str) -> AsyncIterator[str]:
        """Yield the names of all sources in order, reading them page by page.

        Example:
            async for source in search.sources("notes"):
                print(source)
        """
        cursor: str | None = None
        while True:
            page = await self.info(collection, limit=_PAGE, cursor=cursor)
            for source in page.sources:
                yield source
            cursor = page.next_cursor
            if cursor is None:
                return

    async def call(
        self, tool: str, tool_input: Mapping[str, Any], *, progress: Advance | None = None
    ) -> dict[str, Any]:
        """Call any tool on the network, with the wire names of its fields.

        Example:
            found = await search.call("search-query", {"collection": "notes", "query": "backup"})
            print(found["count"])

        With ``progress``, for tools that take a ``jobId``, the timeout is that of indexing.
        """
        if progress is None:
            return await self._opened.call(tool, tool_input, timeout=self._timeout)
        return await self._opened.run_job(tool, tool_input, timeout=LONG_SECONDS, advance=progress)

    async def _call(
        self,
        tool: str,
        returns: type[R],
        *,
        progress: Advance | None = None,
        before: int = 0,
        **given: object,
    ) -> R:
        """Call one of the eight tools; fields that are ``None`` are omitted."""
        row = BY_NAME[tool]
        fields = {name: value for name, value in given.items() if value is not None}
        tool_input = _json(row.params.model_validate(fields))
        if row.reports_progress:
            answer = await self._opened.run_job(
                tool, tool_input, timeout=LONG_SECONDS, advance=progress, before=before
            )
        else:
            answer = await self._opened.call(tool, tool_input, timeout=self._timeout)
        try:
            return returns.model_validate(answer)
        except ValidationError as exc:
            raise RemoteError(f"unexpected answer of {tool}: {validation_text(exc)}") from exc

    @property
    def _opened(self) -> ToolClient:
        if self._tools is None:
            raise RuntimeError("not open: use `async with SearchClient(...) as search`")
        return self._tools


def _json(checked: BaseModel) -> dict[str, Any]:
    # As JSON, half a character in a name would be replaced.
    check_unicode(checked.model_dump(by_alias=True, exclude_unset=True))
    return checked.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _sum(one: results.IndexResult, other: results.IndexResult) -> results.IndexResult:
    names = (*results.COUNTED, "took_ms")
    counts = {name: getattr(one, name) + getattr(other, name) for name in names}
    lists = {
        name: [*(getattr(one, name) or ()), *(getattr(other, name) or ())] or None
        for name in ("warnings", "wanted")
    }
    failed = [*one.failed, *other.failed]
    return other.model_copy(update={**counts, **lists, "failed": failed})
