"""Facets: scalars of a document's metadata as strings for index lookup."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ability_search.errors import InvalidInput
from ability_search.filters.operands import checked_scalar, checked_text
from ability_search.filters.tree import Scalar

_MAX_TEXT = 1 << 20
_MAX_FACETS = 1024
"""A document with more is refused, because filters would miss it if a facet were dropped."""
_MAX_DEPTH = 16
_MAX_BYTES = 256 << 10
"""Maximum bytes of the keys and texts of metadata, in UTF-8."""
_MAX_VALUES = 10_000
"""Maximum values of metadata, among them objects, arrays, null and repeated values."""
_HINT = "Keep only fields to filter by in metadata; put the rest into the content."
_MAX_FACET_BYTES = 200
"""Longer facets are stored as a hash, which keeps the index keys small."""

_KEY_ESCAPES = str.maketrans({char: "\\" + char for char in "\\.=#"})


def facets_of(metadata: Mapping[str, Any]) -> list[str]:
    """List the facets that equality filters look up; check that filters cover all of ``metadata``.

    One facet ``key=value`` per scalar, the keys of nested maps joined by dots and the value as
    JSON, so that ``"1"``, ``1`` and ``true`` differ while ``1`` and ``1.0`` do not; one per
    distinct scalar in a list, and one for the whole list if all its elements are scalars. Null
    has none. Two different keys or values never share a facet.

    Args:
        metadata: any JSON object; ``{}`` has no facets.

    Returns:
        Facets without duplicates, in the order of the metadata.

    Raises:
        InvalidInput: naming the place (``metadata.a.b``), for too many facets, nesting too deep,
            keys that are not strings, numbers beyond 64 bits or not finite, text that is not
            valid Unicode, values that JSON does not know, and the outermost key ``@type``.
    """
    if "@type" in metadata:
        # The engine would read the whole map as an embedded document of that type.
        raise InvalidInput(
            "metadata",
            "has the key @type, which the database reserves",
            hint="Rename the key, or move it into a nested object.",
        )
    facets: dict[str, None] = {}
    for found in _walk((), metadata, _MAX_DEPTH):
        facets[found] = None
        if len(facets) > _MAX_FACETS:
            raise InvalidInput("metadata", f"has more than {_MAX_FACETS} values", hint=_HINT)
    return list(facets)


def check_size(metadata: Mapping[str, Any]) -> None:
    """Check the size of metadata, which is stored with each chunk and returned with each hit.

    Raises:
        InvalidInput: if it has too many values or bytes of text.
    """
    values = size = 0
    left: list[Any] = [metadata]
    while left:
        value = left.pop()
        if isinstance(value, str):
            size += len(value.encode("utf-8", "replace"))
        elif isinstance(value, Mapping):
            left += (*value, *value.values())
            values += len(value)
        elif isinstance(value, list | tuple):
            left += value
            values += len(value)
        if values > _MAX_VALUES:
            raise InvalidInput("metadata", f"has more than {_MAX_VALUES} values", hint=_HINT)
        if size > _MAX_BYTES:
            raise InvalidInput("metadata", f"has more than {_MAX_BYTES} bytes of text", hint=_HINT)


def facet(path: tuple[str, ...], value: Scalar | tuple[Scalar, ...]) -> str:
    """Return the facet of a checked value (or of a whole list) under ``path``."""
    key = ".".join(part.translate(_KEY_ESCAPES) for part in path)
    plain = f"{key}={json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
    encoded = plain.encode()
    if len(encoded) <= _MAX_FACET_BYTES:
        return plain
    return "#" + hashlib.sha256(encoded).hexdigest()


def _walk(path: tuple[str, ...], value: object, depth: int) -> Iterator[str]:
    at = ".".join(("metadata", *path))
    if depth < 0:
        raise InvalidInput(at, "is nested too deep")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            checked_text(f"{at} key {key!r}", key, _MAX_TEXT)
            yield from _walk((*path, key), inner, depth - 1)
    elif isinstance(value, list | tuple):
        yield from _walk_list(path, value, at, depth)
    elif value is not None:
        yield facet(path, _stored_scalar(at, value))


def _walk_list(
    path: tuple[str, ...], items: list[Any] | tuple[Any, ...], at: str, depth: int
) -> Iterator[str]:
    scalars = []
    for position, item in enumerate(items):
        if item is None or isinstance(item, Mapping | list | tuple):
            # These elements have no facets, but values that cannot be stored are still refused.
            for _ in _walk((*path, str(position)), item, depth - 1):
                pass
        else:
            scalars.append(_stored_scalar(f"{at}.{position}", item))
    for scalar in scalars:
        yield facet(path, scalar)
    if len(scalars) == len(items):
        yield facet(path, tuple(scalars))


def _stored_scalar(at: str, value: object) -> Scalar:
    if not isinstance(value, bool | int | float | str):
        raise InvalidInput(at, f"is {type(value).__name__}, which JSON does not know")
    return checked_scalar(at, value, _MAX_TEXT)
