"""Numeric ids of terms for the sparse index."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

TermIds = npt.NDArray[np.int32]
"""Term ids, shape (n,), each in [0, 2**30)."""

CONTENT: Final = "content"
TITLE: Final = "title"
CONTEXT: Final = "context"
"""Name of the field of the text around a chunk that it is searched with."""

_TITLE = 1 << 29
_CONTEXT = 3 << 28
_METADATA = 7 << 27
_OF_TITLE = (1 << 28) - 1
_OF_TERM = (1 << 27) - 1


def metadata_field(path: Sequence[str]) -> str:
    r"""Name the field of the terms under a key of the metadata.

    The keys of nested maps, outermost first, are joined by dots; a dot within a key has a
    backslash, as has a backslash. No two keys share a field.
    """
    keys = (key.replace("\\", "\\\\").replace(".", "\\.") for key in path)
    return ".".join(("metadata", *keys))


@lru_cache(maxsize=1 << 17)
def term_id(field: str, term: str) -> int:
    """Return the 30-bit id of ``term`` in ``field``, which never changes.

    The low bits are those of the little-endian BLAKE2b digest of 4 bytes over ``field``, NUL and
    ``term`` in UTF-8: 29 bits of a term in the content, below 2**29. Title and context have those
    of the same term in the content: the title 28, from 2**29 (see :func:`content_places`), the
    context 27, from 3 * 2**28. Fields of the metadata have 27, from 7 * 2**27. Terms that collide
    share their postings: in a vocabulary of a million about one term in 500, 250 or 125.
    """
    embedded = field in (CONTENT, TITLE, CONTEXT)
    text = f"{CONTENT if embedded else field}\0{term}".encode("utf-8", "surrogatepass")
    digest = int.from_bytes(blake2b(text, digest_size=4).digest(), "little")
    if field == CONTENT:
        return digest & (_TITLE - 1)
    if field == TITLE:
        return digest & _OF_TITLE | _TITLE
    return digest & _OF_TERM | (_CONTEXT if embedded else _METADATA)


def are_of_content(ids: TermIds) -> npt.NDArray[np.bool_]:
    """Return for each id whether it is the id of a term in the content, shape as ``ids``."""
    return np.asarray(ids < _TITLE)


def embedded_terms(ids: TermIds) -> TermIds:
    """Return a number below 2**27 for the term of each id, the same for title, content and context.

    Shape as ``ids``; -1 for terms of the metadata, which are not in the text that is embedded.
    """
    return np.where(ids < _METADATA, ids & _OF_TERM, -1).astype(np.int32)


def content_places(ids: TermIds) -> npt.NDArray[np.int64]:
    """Return where in ``ids`` each term of the title is a term of the content.

    Args:
        ids: distinct ids of one chunk.

    Returns:
        Shape as ``ids``: an index, -1 for a term that only the title has, and -2 for terms of other
        fields than the title.
    """
    places = {id_ & _OF_TITLE: at for at, id_ in enumerate(ids.tolist()) if id_ < _TITLE}
    titled = (ids >= _TITLE) & (ids < _CONTEXT)
    found = [places.get(id_ & _OF_TITLE, -1) for id_ in ids.tolist()]
    return np.where(titled, np.array(found, np.int64), -2)
