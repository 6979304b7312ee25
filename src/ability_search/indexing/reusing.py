"""Vectors that are stored already, instead of asking the model for them once more.

The chunks are the cache: each names what its vector was made from, see :func:`.vector_key`, so
there is no second copy, and nothing to evict. It never fails a document: where the look-up fails,
everything is embedded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ability_search import statements
from ability_search.documents import Vector
from ability_search.errors import SearchError, StatementRefused
from ability_search.indexing.preparing import vector_key
from ability_search.ports import Store

log = logging.getLogger(__name__)

_COLLECTIONS = 16
"""Other collections that are asked."""
_MISSES = 4
"""Look-ups without success after which another collection is not asked again."""
_PATIENCE = 10.0
"""Seconds for a look-up; an embedder shall not wait longer for what spares it work."""
_GONE = ("missing_type", "missing_database")
_UNIT = 1e-3
"""How far the length of a vector may be from 1."""
_SAME = 0.98
"""Least cosine of what a model makes of a text now and what it made of it before. Quantized models
give slightly different vectors in different company; another model's have nothing in common."""

Embed = Callable[[list[str]], Awaitable[Vector]]


class Reusing:
    """The vectors that a database holds of one model, for one call.

    Those of other generations are taken only after a look at the model: the first text found there
    is embedded nevertheless, and has to give what is stored. Else the model has changed under its
    name, and what it made before has no place beside what it makes now.

    Args:
        store: The database.
        model: The model.
        record: The collection that the vectors are for, which may be one being built.
        dimensions: Of that collection; ``None`` of a new one.
        embed: Asks the model.
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
        """Types of other generations, and how often each was asked in vain."""

    async def find(self, texts: Sequence[str]) -> Mapping[str, Vector]:
        """The vectors of those of ``texts`` that are stored, each of unit length; never raises."""
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
            # A type may have been dropped, or there is nothing yet.
            self._works = isinstance(exc, StatementRefused) and exc.reason in _GONE
            if not self._works:
                problem = str(exc) or "no answer in time"
                log.warning("stored vectors are not used again: %s", problem)
            return {}
        return {**own, **others}

    async def _look_around(self) -> list[str]:
        """Find out who may have vectors; the types of the generation itself."""
        async with asyncio.timeout(_PATIENCE):
            places = await self._store.read(
                *statements.vector_places(self._model, self._record, limit=_COLLECTIONS)
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
                    types.append(statements.aspect_type(record["type"]))
        return types

    async def _among(self, types: Sequence[str], left: dict[str, str]) -> dict[str, Vector]:
        """What types hold of the keys that are left, by text; it is taken out of these."""
        found: dict[str, Vector] = {}
        if not types or not left:
            return found
        async with asyncio.timeout(_PATIENCE):
            answer = await self._store.read(*statements.known_vectors(types, list(left)))
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
        """What was found, if it is what the model makes of these texts today."""
        text, known = next(iter(found.items()))
        (vector,) = await self._embed([text])
        self._dimensions = len(vector)
        if len(known) == len(vector) and float(known @ vector) >= _SAME:
            self._trusted = True
            return {each: other for each, other in found.items() if len(other) == len(vector)}
        self._others.clear()
        log.warning("%s gives other vectors than before: those are not used", self._model)
        return {}
