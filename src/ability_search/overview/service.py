"""The parts of an overview, asked for together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.collection import Collection
from ability_search.errors import NotFound
from ability_search.overview.projection import Projection, principal_axes
from ability_search.overview.sizes import bin_width
from ability_search.overview.times import Growth, Period, finest, grown
from ability_search.ports import Store

_BINS = 24
_PERIODS = 120
_FITTED = 1000
"""Vectors that the axes of a map are fitted to, if they are not too long."""
_FITTED_NUMBERS = 700_000
"""Numbers in all of these together: about 8 MB as text, half a second of work."""
_COUNTED = 200_000
"""Chunks above which sizes are counted of a sample."""
_SAMPLE = 20_000
"""Its size: the share of a bin is then off by .35 % at most, one standard error."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which parts are wanted."""

    tokens: bool = False
    growth: bool = False
    points: int | None = None
    """Most chunks on the map; ``None`` for no map."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A histogram of the tokens of chunks.

    Attributes:
        width: Of a bin, in tokens.
        bins: How many chunks are in each, by the least size that belongs to it, ascending;
            empty ones between others are there.
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
    """How its content begins, in one line."""
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Map:
    """Chunks in two dimensions, those of similar meaning near each other.

    Attributes:
        points: The chunks.
        chunks: Those that could be on it, of which the points are a sample if they are fewer.
        explained: Share of the variance that x and y show.
    """

    points: tuple[Point, ...]
    chunks: int
    explained: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Overview:
    """The parts that were wanted."""

    sizes: Sizes | None = None
    growth: Growth | None = None
    map: Map | None = None


async def look_over(
    store: Store,
    catalogue: Catalogue,
    collection: Collection,
    wanted: Wanted,
    *,
    counted: int = _COUNTED,
    sample: int = _SAMPLE,
) -> Overview:
    """Look at the chunks of a collection's live generation, aspects aside.

    One read, two for a map; none if nothing is wanted.

    Args:
        store: The database.
        catalogue: What is known of the collections.
        collection: Which one.
        wanted: Which parts.
        counted: Chunks up to which the sizes of all are counted.
        sample: Chunks whose sizes are counted of a larger collection.

    Raises:
        NotFound: if it is gone.
        TooLarge: if the points do not fit into a message.
        DatabaseUnavailable: if the database does not answer.
    """
    if wanted == Wanted():
        return Overview()

    async def ask(current: Collection) -> tuple[Sequence[Mapping[str, Any]], Overview]:
        return await _Look(store, current, wanted, counted=counted, sample=sample).taken()

    found = await catalogue.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.public_name)
    return found[1]


class _Look:
    """One look at one generation."""

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
        """The rows of the collection's record and the parts."""
        wanted, collection = self._wanted, self._collection
        fitted = min(_FITTED, max(2, _FITTED_NUMBERS // collection.dimensions))
        answer = await self._store.read(
            *statements.overview(
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
            *statements.map_points(
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
