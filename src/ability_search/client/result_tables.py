"""Results of the client, those of the tools; they render as tables in notebooks.

A notebook calls ``_repr_html_`` of the last value of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ability_search.search.response import Hit, QueryResult, SimilarResult
from ability_search.tools import results

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
