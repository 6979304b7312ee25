"""Metadata as text: what a keyword search over chosen fields finds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ability_search.analysis import Analyzer, metadata_field

TERMS_OF_A_FIELD = 128
TERMS_OF_A_DOCUMENT = 256
"""Every chunk of the document carries them."""
_MAX_CHARACTERS = 4096
_MAX_DEPTH = 16


def metadata_terms(metadata: Mapping[str, Any], analyzer: Analyzer) -> dict[str, list[str]]:
    """Analyze the texts in metadata.

    Args:
        metadata: Any JSON object.
        analyzer: Of the collection's language.

    Returns:
        By the name of each field (:func:`.analysis.metadata_field`) the terms of a text, or of
        the texts in a list. Of each field the first 128 count, taken from its first 4,096
        characters, and of a document the first 256, in the order of its metadata; keys nested
        deeper than 16 levels do not. Fields without terms are left out.
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
    """The texts in a value, each with the keys that lead to it."""
    if isinstance(value, Mapping):
        if len(path) < _MAX_DEPTH:
            for key, inner in value.items():
                yield from _texts((*path, key), inner)
    elif isinstance(value, str):
        yield path, value[:_MAX_CHARACTERS]
    elif isinstance(value, list | tuple):
        texts = [each[:_MAX_CHARACTERS] for each in value if isinstance(each, str)]
        yield path, "\n".join(texts)[:_MAX_CHARACTERS]
