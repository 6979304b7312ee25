"""What a statement is, and the names of the types it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

_COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Statement(NamedTuple):
    """A script, or a single query, and its bound parameters."""

    text: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on chunks: SQL for a WHERE clause, with the parameters it binds."""

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)


def rows_together(queries: Mapping[str, str], answer: Iterable[str]) -> str:
    """One query that answers with a map: the rows of others by their names.

    The engine keeps what it has parsed and planned of a query, but reads a script anew each time.

    Args:
        queries: Made in this order; later ones may use earlier ones as variables.
        answer: Those to answer with.
    """
    variables = ", ".join(f"${name} = ({query})" for name, query in queries.items())
    return f"SELECT {', '.join(f'${name} AS {name}' for name in answer)} LET {variables}"


def is_collection_name(name: str) -> bool:
    """Return whether a name is 1 to 64 of ``A-Z a-z 0-9 . _ -``, a letter or digit first."""
    return _COLLECTION_NAME.fullmatch(name) is not None


def type_name(collection: str, token: str) -> str:
    """The chunk type of one generation of a collection.

    The readable part may be shared by several names (``a.b`` and ``a_b``), the hash is not; the
    token makes a collection that is deleted and created again start with a type of its own.

    Args:
        collection: A valid collection name.
        token: Lower-case letters and digits, unique to the generation.
    """
    slug = re.sub(r"[^A-Za-z0-9]", "_", collection)[:32]
    digest = blake2b(collection.encode(), digest_size=4).hexdigest()
    return f"Chunk_{slug}_{digest}_{token}"


def source_type(chunk_type: str) -> str:
    """The type that holds the Source records of a generation."""
    return "Source" + chunk_type.removeprefix("Chunk")


def link_type(chunk_type: str) -> str:
    """The type that holds the links between sources of a generation, where it has any."""
    return "Link" + chunk_type.removeprefix("Chunk")


def aspect_type(chunk_type: str) -> str:
    """The type that holds the chunks of a generation's aspects, where it has any."""
    return "Aspect" + chunk_type.removeprefix("Chunk")
