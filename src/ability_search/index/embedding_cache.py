"""The embedding cache: reuse of vectors that are already stored.

The chunks are the cache: each has a key of the text its vector was made from, see
:func:`.vector_key`, so there is no second copy and nothing to evict. A failing lookup never fails
a document; all texts are then embedded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ability_search.collection import Collection, public_name
from ability_search.documents import Vector
from ability_search.errors import GenerationGone, SearchError, TextsRefused
from ability_search.index.index_calls import IndexJob
from ability_search.index.preparation import vector_key
from ability_search.ops.metrics.metric_table import EMBEDDING_TEXTS
from ability_search.store.pages import read_together
from ability_search.store.stored_collections import COLLECTION, collection_of
from ability_search.store.values import KINDS_LAYER, Chunks, Columns, Read, Records, of_collection

log = logging.getLogger(__name__)

_VECTORS = Columns(("vector_key", "embedding"))
_COLLECTIONS = 16
"""Maximum number of other collections to search."""
_READ = 64
"""Collections of the model that are read for them, the last changed first."""
_MISSES = 4
"""Consecutive lookups without a hit after which another collection is no longer searched."""
_CHECKED = 4
"""Texts that are embedded again for the check of a model, until it accepts one."""
_PATIENCE = 10.0
"""Timeout of a lookup in seconds, so that it does not delay embedding for longer."""
_UNIT = 1e-3
"""Tolerance for the length of a unit vector."""
_SAME = 0.98
"""Minimum cosine of the stored and the new vector of a text. Vectors of quantized models depend
slightly on the rest of the batch; vectors of another model are unrelated."""

Place = tuple[Collection, str]
"""A generation, and the layer of its chunks."""


class EmbeddingCache:
    """The stored vectors of the model of a call.

    Vectors of other generations are reused only after a check of the model: the first text found
    there is embedded again and must give the stored vector. Otherwise another model now has this
    name, and vectors of both must not be mixed.

    With force nothing is reused, except in a rebuild.
    """

    def __init__(self, job: IndexJob) -> None:
        self._ports = job.ports
        self._store = job.ports.store
        self._model = job.recipe.model
        self._record = job.record
        self._dimensions = None if job.collection is None else job.collection.dimensions
        reuse = job.ports.settings.embedding.reuse
        self._works = reuse and (job.rebuild or not job.options.force)
        self._trusted = False
        self._own: Sequence[Place] | None = None
        self._others: Counter[Place] = Counter()
        """Places in other generations, with the number of consecutive lookups without a hit."""

    async def find(self, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Return the stored vectors by text, each of unit length; never raises."""
        if not self._works:
            return {}
        left = {vector_key(self._model, text): text for text in texts}
        try:
            if self._own is None:
                self._own = await self._places()
            own = await self._among(self._own, left)
            others = await self._among(list(self._others), left)
            if others and not self._trusted:
                others = await self._confirmed(others)
        except (SearchError, TimeoutError) as exc:
            self._own = None
            self._works = isinstance(exc, GenerationGone)
            if not self._works:
                problem = str(exc) or "no answer in time"
                log.warning("stored vectors are not reused: %s", problem)
            return {}
        self._ports.meter.add(EMBEDDING_TEXTS, len(own) + len(others), "reused")
        return {**own, **others}

    async def _places(self) -> Sequence[Place]:
        """Find the places that may have vectors; return those of the generation itself."""
        of = Records(COLLECTION, where={"model": self._model})
        async with asyncio.timeout(_PATIENCE):
            pages = await read_together(
                self._store,
                Read(replace(of, scope=of_collection(self._record))),
                Read(of, limit=_READ, order="updated_at", descending=True),
            )
        found = (collection_of(record) for page in pages for record in page.items)
        same = {each.name: each for each in found}
        own, replaced = same.pop(self._record, None), same.pop(public_name(self._record), None)
        others = [each for each in same.values() if each.chunks][:_COLLECTIONS]
        self._others = Counter(dict.fromkeys(self._layers([replaced, *others]), 0))
        return self._layers([own])

    def _layers(self, collections: Sequence[Collection | None]) -> list[Place]:
        """Return the places of collections with vectors of the wanted size."""
        return [
            (each, layer)
            for each in collections
            if each is not None and self._dimensions in (None, each.dimensions)
            for layer in (("", KINDS_LAYER) if each.kind_chunks else ("",))
        ]

    async def _among(self, places: Sequence[Place], left: dict[str, str]) -> dict[str, Vector]:
        """Return vectors found in places, by text, and remove their keys from ``left``."""
        found: dict[str, Vector] = {}
        if not places or not left:
            return found
        async with asyncio.timeout(_PATIENCE):
            pages = await read_together(
                self._store,
                *(
                    Read(Chunks(layer, vector_keys=[*left]), collection, _VECTORS)
                    for collection, layer in places
                ),
            )
        for place, page in zip(places, pages, strict=True):
            self._count_miss(place, success=bool(page.items))
            for row in page.items:
                vector = np.asarray(row["embedding"] or (), dtype=np.float32)
                if row["vector_key"] in left and self._fits(vector):
                    found[left.pop(row["vector_key"])] = vector
        return found

    def _count_miss(self, place: Place, *, success: bool) -> None:
        if place not in self._others:
            return
        self._others[place] = 0 if success else self._others[place] + 1
        if self._others[place] == _MISSES:
            del self._others[place]

    def _fits(self, vector: Vector) -> bool:
        has_length = abs(float(np.linalg.norm(vector)) - 1) <= _UNIT
        return has_length and self._dimensions in (None, len(vector))

    async def _confirmed(self, found: dict[str, Vector]) -> dict[str, Vector]:
        """Return the vectors found if the model still produces the same ones, else nothing.

        Those of texts that it now refuses cannot be checked, and are all that there is of them.
        """
        refused: dict[str, Vector] = {}
        for text, known in islice(found.items(), _CHECKED):
            try:
                (vector,) = await self._ports.embed(self._model, [text])
                break
            except TextsRefused:
                refused[text] = known
        else:
            return refused
        self._dimensions = len(vector)
        if len(known) == len(vector) and float(known @ vector) >= _SAME:
            self._trusted = True
            return {each: other for each, other in found.items() if len(other) == len(vector)}
        self._others.clear()
        log.warning("%s now returns other vectors: stored ones are not reused", self._model)
        return {}
