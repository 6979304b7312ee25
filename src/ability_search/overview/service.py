"""Computation of an overview of a collection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import NotFound
from ability_search.overview.projection import Projection, principal_axes
from ability_search.overview.sizes import bin_width
from ability_search.overview.times import Growth, Period, finest, grown
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

_BINS = 24
_PERIODS = 120
_FITTED = 1000
"""Vectors that the axes of a map are fitted to, unless :data:`_FITTED_NUMBERS` allows fewer."""
_FITTED_NUMBERS = 700_000
"""Limit of numbers in all of these together: about 8 MB as text, half a second of work."""
_COUNTED = 200_000
"""Chunks above which sizes are counted on a sample."""
_SAMPLE = 20_000
"""Size of the sample: the standard error of a bin's share is at most .35 %."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested parts of an overview."""

    tokens: bool = False
    growth: bool = False
    points: int | None = None
    """Maximum number of chunks on the map; ``None`` for no map."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A histogram of chunk sizes in tokens.

    Attributes:
        width: Width of a bin, in tokens.
        bins: Number of chunks by the lower bound of each bin, ascending, including empty bins
            between others.
        sampled: Whether only a sample of the chunks was counted.
    """

    width: int
    bins: Mapping[int, int]
    sampled: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A chunk on the map."""

    chunk_id: str
    source: str
    title: str
    excerpt: str
    """Beginning of its content, in one line."""
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Map:
    """Chunks in two dimensions; chunks of similar meaning are close to each other.

    Attributes:
        points: The chunks.
        chunks: Number of chunks that could be shown; if there are fewer points, they are a sample.
        explained: Share of the variance along x and y.
    """

    points: tuple[Point, ...]
    chunks: int
    explained: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Overview:
    """The requested parts."""

    sizes: Sizes | None = None
    growth: Growth | None = None
    map: Map | None = None


async def look_over(
    store: Store,
    registry: Registry,
    collection: Collection,
    wanted: Wanted,
    *,
    counted: int = _COUNTED,
    sample: int = _SAMPLE,
) -> Overview:
    """Compute an overview of a collection's live generation, without aspects.

    One read, two for a map; none if nothing is requested.

    Args:
        store: The database.
        registry: Registry of the collections.
        collection: The collection.
        wanted: The requested parts.
        counted: Number of chunks up to which all sizes are counted.
        sample: Number of chunks to count in a larger collection.

    Raises:
        NotFound: if the collection is gone.
        TooLarge: if the points do not fit into a message.
        DatabaseUnavailable: if the database does not answer.
    """
    if wanted == Wanted():
        return Overview()

    async def ask(current: Collection) -> tuple[Sequence[Mapping[str, Any]], Overview]:
        return await _Look(store, current, wanted, counted=counted, sample=sample).taken()

    found = await registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.public_name)
    return found[1]


class _Look:
    """One overview of one generation."""

    def __init__(
        self, store: Store, collection: Collection, wanted: Wanted, *, counted: int, sample: int
    ) -> None:
        self._store = store
        self._collection = collection
        self._wanted = wanted
        self._chunks = collection.chunks - collection.aspects
        self._indexed = self._chunks - collection.duplicates
        self._width = bin_width(collection.tokens_min or 0, collection.tokens_max or 0, bins=_BINS)
        self._period = finest(collection.created_at, collection.updated_at)
        self._sample = sample if self._chunks > counted else None

    async def taken(self) -> tuple[Sequence[Mapping[str, Any]], Overview]:
        """Return the rows of the collection's record and the parts."""
        wanted, collection = self._wanted, self._collection
        fitted = min(_FITTED, max(2, _FITTED_NUMBERS // collection.dimensions))
        answer = await self._store.read(
            *arcadedb.overview(
                collection.name,
                collection.type,
                width=self._width if wanted.tokens else None,
                counted=self._sample,
                period=self._period if wanted.growth else None,
                vectors=None if wanted.points is None else fitted,
                indexed=self._indexed,
            )
        )
        record, map_ = answer["collection"], None
        if wanted.points is not None:
            record, map_ = await self._map(wanted.points, answer)
        return record, Overview(
            self._sizes(answer["sizes"]) if wanted.tokens else None,
            self._growth(answer["periods"]) if wanted.growth else None,
            map_,
        )

    def _sizes(self, rows: Sequence[Mapping[str, Any]]) -> Sizes:
        found = {int(row["least"]): int(row["chunks"]) for row in rows}
        width = self._width
        every = range(min(found), max(found) + width, width) if found else ()
        bins = {least: found.get(least, 0) for least in every}
        return Sizes(width, bins, self._sample is not None)

    def _growth(self, rows: Sequence[Mapping[str, Any]]) -> Growth:
        periods = [Period(int(row["start"]), row["sources"], row["chunks"]) for row in rows]
        return grown(periods, period=self._period, most=_PERIODS)

    async def _map(
        self, most: int, answer: Mapping[str, Any]
    ) -> tuple[Sequence[Mapping[str, Any]], Map]:
        vectors = [row["embedding"] for row in answer["vectors"]]
        if not vectors:
            return answer["collection"], Map((), 0, (0.0, 0.0))
        projection = await asyncio.to_thread(principal_axes, vectors)
        axes = len(projection.axes)
        placed = await self._store.read(
            *arcadedb.map_points(
                self._collection.name,
                self._collection.type,
                projection.axes.round(7).tolist(),
                limit=most,
                indexed=self._indexed,
            )
        )
        points = tuple(_point(row, axes, projection) for row in placed["points"])
        x, y = [*projection.explained.tolist(), 0.0, 0.0][:2]
        return placed["collection"], Map(points, max(self._indexed, len(points)), (x, y))


def _point(row: Mapping[str, Any], axes: int, projection: Projection) -> Point:
    x, y = projection.place([row[f"axis{place}"] for place in range(axes)])
    excerpt = " ".join(row["excerpt"].split())
    return Point(row["chunkId"], row["source"], row["title"], excerpt, x, y)
