"""Terms of metadata fields, for keyword search in selected fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ability_search.text.analyzer import Analyzer
from ability_search.text.term_ids import metadata_field

TERMS_OF_A_FIELD = 128
TERMS_OF_A_DOCUMENT = 256
"""Limited because every chunk of the document stores them."""
_MAX_CHARACTERS = 4096
_MAX_DEPTH = 16


def metadata_terms(metadata: Mapping[str, Any], analyzer: Analyzer) -> dict[str, list[str]]:
    """Return the terms of the texts in metadata, by field.

    Args:
        metadata: Any JSON object.
        analyzer: Analyzer of the collection's language.

    Returns:
        The terms of a text, or of the texts in a list, by field name
        (:func:`.analysis.metadata_field`). A field gives its first 128 terms, taken from its first
        4,096 characters; a document gives its first 256 terms, in the order of its metadata. Keys
        nested deeper than 16 levels and fields without terms are left out.
    """
    fields: dict[str, list[str]] = {}
    left = TERMS_OF_A_DOCUMENT
    for path, text in _texts((), metadata):
        terms = list(islice(analyzer.terms(text), min(left, TERMS_OF_A_FIELD)))
        left -= len(terms)
        if terms:
            fields[metadata_field(path)] = terms
        if not left:
            break
    return fields


def _texts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts in a value, each with its path of keys."""
    if isinstance(value, Mapping):
        if len(path) < _MAX_DEPTH:
            for key, inner in value.items():
                yield from _texts((*path, key), inner)
    elif isinstance(value, str):
        yield path, value[:_MAX_CHARACTERS]
    elif isinstance(value, list | tuple):
        texts = [each[:_MAX_CHARACTERS] for each in value if isinstance(each, str)]
        yield path, "\n".join(texts)[:_MAX_CHARACTERS]
