"""Options and results of the client; results render as tables in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypedDict

from ability_search.search.response import Hit, QueryResult, SimilarResult
from ability_search.tools import results

_SHOWN = 300
"""Characters of a hit's text shown in a table."""


class QueryOptions(TypedDict, total=False):
    """Additional options of search-query; see docs/tools.md."""

    offset: int
    model: str
    sources: Sequence[str]
    exclude_sources: Sequence[str]
    min_score: float
    hypothetical_answer: str
    fusion: Mapping[str, Any]
    full_text: Mapping[str, Any]
    rerank: Mapping[str, Any]
    reranker: Mapping[str, Any]
    extended: Sequence[str]
    prf: bool | Mapping[str, Any]
    understand: bool
    temporal: Mapping[str, Any]
    time_range: Mapping[str, Any]
    as_of: str
    exclude: Sequence[str]
    decay: Mapping[str, Any]
    graph: Mapping[str, Any]
    diversity: float
    max_per_source: int
    expand: str | Mapping[str, Any]
    max_result_tokens: int
    expand_query: bool | Mapping[str, Any]
    highlights: bool
    explain: bool


class ReindexOptions(TypedDict, total=False):
    """Additional options of search-reindex; see docs/tools.md."""

    model: str
    chunk_strategy: str
    max_tokens: int
    language: str
    kinds: Sequence[str]
    kinds_by: str
    clear: bool
    background: bool
    cancel: bool


class IndexOptions(TypedDict, total=False):
    """Additional options of search-index; see docs/tools.md."""

    chunk_strategy: str
    max_tokens: int
    overlap: int
    model: str
    language: str
    kinds: Sequence[str]
    kinds_by: str
    force: bool
    dedup_threshold: float


class FileOptions(TypedDict, total=False):
    """Additional options of search-index-file; see docs/tools.md."""

    format: str
    include: Sequence[str]
    exclude: Sequence[str]
    gitignore: bool
    chunk_strategy: str
    max_tokens: int
    overlap: int
    model: str
    language: str
    kinds: Sequence[str]
    kinds_by: str
    force: bool
    sweep: bool


class Hits(QueryResult):
    """Result of :meth:`SearchClient.query`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        degraded = f"; degraded: {self.degraded.reason}" if self.degraded else ""
        about = f"{self.count} hits for {self.query!r}, {self.mode}{degraded}"
        return _hits_table(about, self.results)


class Neighbours(SimilarResult):
    """Result of :meth:`SearchClient.similar`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        return _hits_table(f"{self.count} chunks like {self.source_chunk.chunk_id}", self.results)


class Collections(results.CollectionsResult):
    """Result of :meth:`SearchClient.collections`; renders as a table in notebooks."""

    def _repr_html_(self) -> str:
        names = ("name", "chunks", "sources", "avg_tokens", "model", "updated_at")
        rows = [[_cell(getattr(each, name)) for name in names] for each in self.collections]
        return _table(f"{len(rows)} collections", names, rows)


_LONG = {"sources", "next_cursor", "tokens", "growth", "map"}


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
