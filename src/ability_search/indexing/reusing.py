"""The embedding cache: reuse of vectors that are already stored.

The chunks are the cache: each has a key of the text its vector was made from, see
:func:`.vector_key`, so there is no second copy and nothing to evict. A failing lookup never fails
a document; all texts are then embedded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ability_search.documents import Vector
from ability_search.errors import SearchError, StatementRefused
from ability_search.indexing.preparing import vector_key
from ability_search.ports import Store
from ability_search.store import arcadedb

log = logging.getLogger(__name__)

_COLLECTIONS = 16
"""Maximum number of other collections to search."""
_MISSES = 4
"""Consecutive lookups without a hit after which another collection is no longer searched."""
_PATIENCE = 10.0
"""Timeout of a lookup in seconds, so that it does not delay embedding for longer."""
_GONE = ("missing_type", "missing_database")
_UNIT = 1e-3
"""Tolerance for the length of a unit vector."""
_SAME = 0.98
"""Minimum cosine of the stored and the new vector of a text. Vectors of quantized models depend
slightly on the rest of the batch; vectors of another model are unrelated."""

Embed = Callable[[list[str]], Awaitable[Vector]]


class Reusing:
    """The stored vectors of one model, for one call.

    Vectors of other generations are reused only after a check of the model: the first text found
    there is embedded again and must give the stored vector. Otherwise another model now has this
    name, and vectors of both must not be mixed.

    Args:
        store: The database.
        model: The model.
        record: Record of the generation to store the vectors in, which may be a new one.
        dimensions: Dimensions of that generation; ``None`` if it does not exist yet.
        embed: Embeds texts with the model.
    """

    def __init__(
        self, store: Store, model: str, *, record: str, dimensions: int | None, embed: Embed
    ) -> None:
        self._store = store
        self._model = model
        self._record = record
        self._dimensions = dimensions
        self._embed = embed
        self._works = True
        self._trusted = False
        self._own: list[str] | None = None
        self._others: Counter[str] = Counter()
        """Types of other generations, with the number of consecutive lookups without a hit."""

    async def find(self, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Return the stored vectors by text, each of unit length; never raises."""
        if not self._works:
            return {}
        left = {vector_key(self._model, text): text for text in texts}
        try:
            if self._own is None:
                self._own = await self._look_around()
            own = await self._among(self._own, left)
            others = await self._among(list(self._others), left)
            if others and not self._trusted:
                others = await self._confirmed(others)
        except (SearchError, TimeoutError) as exc:
            self._own = None
            # A type may have been dropped, or the database may not exist yet.
            self._works = isinstance(exc, StatementRefused) and exc.reason in _GONE
            if not self._works:
                problem = str(exc) or "no answer in time"
                log.warning("stored vectors are not reused: %s", problem)
            return {}
        return {**own, **others}

    async def _look_around(self) -> list[str]:
        """Find the types that may have vectors; return those of the generation itself."""
        async with asyncio.timeout(_PATIENCE):
            places = await self._store.read(
                *arcadedb.vector_places(self._model, self._record, limit=_COLLECTIONS)
            )
        others = self._types([*places["live"], *places["others"]])
        self._others = Counter(dict.fromkeys(others, 0))
        return self._types(places["own"])

    def _types(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        types = []
        for record in records:
            if self._dimensions in (None, record["dimensions"]):
                types.append(record["type"])
                if record.get("aspects"):
                    types.append(arcadedb.aspect_type(record["type"]))
        return types

    async def _among(self, types: Sequence[str], left: dict[str, str]) -> dict[str, Vector]:
        """Return vectors found in types, by text, and remove their keys from ``left``."""
        found: dict[str, Vector] = {}
        if not types or not left:
            return found
        async with asyncio.timeout(_PATIENCE):
            answer = await self._store.read(*arcadedb.known_vectors(types, list(left)))
        for place, chunk_type in enumerate(types):
            rows = answer[f"v{place}"]
            self._note(chunk_type, success=bool(rows))
            for row in rows:
                vector = np.asarray(row["vector"] or (), dtype=np.float32)
                if row["vectorKey"] in left and self._fits(vector):
                    found[left.pop(row["vectorKey"])] = vector
        return found

    def _note(self, chunk_type: str, *, success: bool) -> None:
        if chunk_type not in self._others:
            return
        self._others[chunk_type] = 0 if success else self._others[chunk_type] + 1
        if self._others[chunk_type] == _MISSES:
            del self._others[chunk_type]

    def _fits(self, vector: Vector) -> bool:
        has_length = abs(float(np.linalg.norm(vector)) - 1) <= _UNIT
        return has_length and self._dimensions in (None, len(vector))

    async def _confirmed(self, found: dict[str, Vector]) -> dict[str, Vector]:
        """Return the vectors found if the model still produces the same ones, else nothing."""
        text, known = next(iter(found.items()))
        (vector,) = await self._embed([text])
        self._dimensions = len(vector)
        if len(known) == len(vector) and float(known @ vector) >= _SAME:
            self._trusted = True
            return {each: other for each, other in found.items() if len(other) == len(vector)}
        self._others.clear()
        log.warning("%s now returns other vectors: stored ones are not reused", self._model)
        return {}
