"""Conversion of tool inputs to service values, and checks against the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ability_search.bounded_batches import text_bytes
from ability_search.config.schema import Limits, Reading
from ability_search.documents import Document
from ability_search.errors import SearchError, TooLarge
from ability_search.filters.parser import parse_filter, source_filter
from ability_search.filters.tree import Filter, combine
from ability_search.index.index_calls import Failure
from ability_search.index.index_ports import ReadDocument
from ability_search.tools import inputs
from ability_search.tools.boundary import invalid_item

_LEAST = 40
"""Number of candidates that a search of few hits has."""
_ALL = 8
"""Number of collections for which ``*`` counts: that many are searched at a time."""
_CHARACTERS = 10
"""Characters of a query that are analyzed in the time of a candidate."""
_LEAF = 5
"""Work of a value in a filter, which the database compares with each row, in candidates."""


def documents(
    value: inputs.IndexInput, limits: Limits, read: Sequence[ReadDocument]
) -> tuple[list[Document], list[Failure]]:
    """Return the documents of a call as steps ``read`` them, and those that are not valid.

    Raises:
        InvalidInput: if none of them is valid.
        TooLarge: if there are too many, their texts are too long together, or each is.
    """
    given: Sequence[inputs.DocumentInput | inputs.RefusedDocument] = value.documents
    hint = "Send them in several calls (setting max_batch_%s)."
    at_most(limits.batch_documents, "documents", len(given), "in one call", hint % "documents")
    whole = [item for item in given if isinstance(item, inputs.DocumentInput)]
    total = sum(text_bytes(item.content) for item in whole)
    at_most(limits.batch_bytes, "documents", total, "bytes in one call", hint % "bytes")
    valid: list[Document] = []
    failed: list[Failure] = []
    for place, item in enumerate(given):
        try:
            valid.append(_document(item, place, limits, read))
        except SearchError as exc:
            failed.append(Failure(item.source or f"documents.{place}", exc))
    if failed and not valid:
        raise failed[0].error
    return valid, failed


def _document(
    item: inputs.DocumentInput | inputs.RefusedDocument,
    place: int,
    limits: Limits,
    read: Sequence[ReadDocument],
) -> Document:
    if isinstance(item, inputs.RefusedDocument):
        raise invalid_item(item.error, inputs.DocumentInput, f"documents.{place}")
    field = f"documents.{place}.content"
    document = Document(
        **dict(item)
        | {
            "title": item.source if item.title is None else item.title,
            "metadata": item.metadata or {},
            "links": tuple(link.model_dump() for link in item.links),
            "children": None if item.children is None else tuple(item.children),
        }
    )
    for step in read:
        document = step(document, item.title is not None, field)
    hint = "Split the document (setting max_document_bytes)."
    at_most(limits.document_bytes, field, text_bytes(document.content), "bytes", hint)
    return document


def at_most(most: int, field: str, given: int, what: str, hint: str) -> None:
    """Check the size of a field.

    Raises:
        TooLarge: if it is greater than ``most``.
    """
    if given > most:
        raise TooLarge(f"{field}: {given} {what}, at most {most} are allowed", hint=hint)


def query_filter(value: inputs.QueryInput, limits: Limits, policy: Filter | None) -> Filter | None:
    """Return the filter of a query within the limits; ``policy`` as for :func:`read_policy`.

    Raises:
        TooLarge: if the query is too long, or too many results are requested.
        InvalidInput: if the filter or a glob is invalid.
    """
    texts: list[tuple[str, str | None]] = [
        ("query", value.query),
        ("hypotheticalAnswer", value.hypothetical_answer),
    ]
    texts += [(f"queries.{place}", text) for place, text in enumerate(value.queries)]
    for name, text in texts:
        hint = "Shorten it (setting max_query_bytes)."
        at_most(limits.query_bytes, name, text_bytes(text or ""), "bytes", hint)
    limit(value.limit, limits)
    return combined_filter(value.filter, value.sources, value.exclude_sources, limits, policy)


def work_of(value: BaseModel) -> int:
    """Return the estimated work of a call, in candidates of a query; 0 for what is no search."""
    if isinstance(value, inputs.SimilarInput):
        return value.limit + _filter_work(value.filter)
    if not isinstance(value, inputs.QueryInput):
        return 0
    texts = [value.query, *value.queries]
    several = isinstance(value.collection, list)
    collections = len(value.collection) if several else _ALL if value.collection == "*" else 1
    found = max(value.offset + value.limit, _LEAST) * len(texts) * collections
    conditions = value.filter, value.sources, value.exclude_sources
    return found + sum(map(len, texts)) // _CHARACTERS + _filter_work(*conditions)


def _filter_work(*conditions: Any) -> int:
    leaves, rest = 0, list(conditions)
    while rest:
        value = rest.pop()
        if isinstance(value, Mapping):
            rest += value.values()
        elif isinstance(value, list | tuple):
            rest += value
        else:
            leaves += value is not None
    return _LEAF * leaves


def limit(wanted: int, limits: Limits) -> int:
    """Return the requested number of results.

    Raises:
        TooLarge: if it exceeds the limit.
    """
    hint = "Page through the results with offset (setting max_limit)."
    at_most(limits.limit, "limit", wanted, "results", hint)
    return wanted


def combined_filter(
    document: Mapping[str, Any] | None,
    sources: Sequence[str] | None,
    exclude_sources: Sequence[str],
    limits: Limits,
    policy: Filter | None,
) -> Filter | None:
    """Return the operator's policy, a filter and globs as one filter; ``None`` without any.

    Raises:
        InvalidInput: if one of them is invalid.
    """
    parts = [] if policy is None else [policy]
    if document is not None:
        parts.append(
            parse_filter(document, max_depth=limits.filter_depth, max_nodes=limits.filter_nodes)
        )
    if sources is not None or exclude_sources:
        parts.append(source_filter(sources, exclude_sources))
    return combine(*parts) if parts else None


def read_policy(reading: Reading) -> Filter | None:
    """Return the filter that applies to every query; ``None`` if all sources may be read."""
    if not (reading.allow or reading.deny):
        return None
    return source_filter(reading.allow or None, reading.deny)
