"""Overview of a collection: chunk sizes, growth and a map."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt

from ability_search.collection import Collection
from ability_search.errors import NotFound
from ability_search.store.port import CopyStore
from ability_search.store.records import MapPoint, OverviewAnswer, OverviewRequest, Read
from ability_search.store.registry import Registry

Floats = npt.NDArray[np.float64]
Unit = Literal["hour", "day", "week", "month", "year"]

_BINS = 24
_BIN_STEPS = (1, 2, 5)
_PERIODS = 120
_FITTED = 1000
"""Vectors that the axes of a map are fitted to, unless :data:`_FITTED_NUMBERS` allows fewer."""
_FITTED_NUMBERS = 700_000
"""Limit of numbers in all of these together: about 8 MB as text, half a second of work."""
_COUNTED = 200_000
"""Chunks above which sizes are counted on a sample."""
_SAMPLE = 20_000
"""Size of the sample: the standard error of a bin's share is at most .35 %."""
AXES = 2
HOUR = 3_600_000
"""In milliseconds, as all durations here."""
DAY = 24 * HOUR
_HOURLY = 3 * DAY
"""Longest history that is counted by the hour."""


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
class Period:
    """Counts of one period of time, which begins at ``start``, in epoch milliseconds."""

    start: int
    sources: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Periods of length ``unit`` in order, in UTC, without empty ones.

    A week begins on Monday.
    """

    unit: Unit
    periods: tuple[Period, ...]


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


async def measure(
    store: CopyStore,
    registry: Registry,
    collection: Collection,
    wanted: Wanted,
    *,
    counted: int = _COUNTED,
    sample: int = _SAMPLE,
) -> Overview:
    """Measure a collection's live generation, without kinds.

    One read, two for a map; none if nothing is requested.

    Args:
        store: The store.
        registry: Registry of the collections.
        collection: The collection.
        wanted: The requested parts.
        counted: Number of chunks up to which all sizes are counted.
        sample: Number of chunks to count in a larger collection.

    Raises:
        NotFound: if the collection is gone.
        TooLarge: if the points do not fit into a message.
        DatabaseUnavailable: if the store does not answer.
    """
    if wanted == Wanted():
        return Overview()

    async def ask(current: Collection) -> Read[Overview]:
        return await _measure(store, current, wanted, counted=counted, sample=sample)

    found = await registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.public_name)
    return found[1]


async def _measure(
    store: CopyStore, collection: Collection, wanted: Wanted, *, counted: int, sample: int
) -> Read[Overview]:
    chunks = collection.chunks - collection.aspects
    fitted = min(_FITTED, max(2, _FITTED_NUMBERS // collection.dimensions))
    width = bin_width(collection.tokens_min or 0, collection.tokens_max or 0, bins=_BINS)
    period = finest(collection.created_at, collection.updated_at)
    request = OverviewRequest(
        bin_width=width if wanted.tokens else None,
        sample=sample if chunks > counted else None,
        period=period if wanted.growth else None,
        vectors=None if wanted.points is None else fitted,
        indexed=chunks - collection.duplicates,
    )
    read = await store.overview(collection, request)
    sizes = _sizes(read.value, width, sampled=chunks > counted) if wanted.tokens else None
    growth = None
    if wanted.growth:
        periods = [Period(*each) for each in read.value.periods]
        growth = grown(periods, period=period, most=_PERIODS)
    if wanted.points is None:
        return Read(read.collection, Overview(sizes, growth))
    mapped = await _map(store, collection, request.indexed, wanted.points, read)
    return Read(mapped.collection, Overview(sizes, growth, mapped.value))


def _sizes(answer: OverviewAnswer, width: int, *, sampled: bool) -> Sizes:
    found = answer.sizes
    every = range(min(found), max(found) + width, width) if found else ()
    return Sizes(width, {least: found.get(least, 0) for least in every}, sampled)


async def _map(
    store: CopyStore, collection: Collection, indexed: int, most: int, read: Read[OverviewAnswer]
) -> Read[Map]:
    if not read.value.vectors:
        return Read(read.collection, Map((), 0, (0.0, 0.0)))
    projection = await asyncio.to_thread(principal_axes, read.value.vectors)
    placed = await store.map_points(
        collection, projection.axes.round(7).tolist(), limit=most, indexed=indexed
    )
    points = tuple(_point(each, projection) for each in placed.value)
    x, y = [*projection.explained.tolist(), 0.0, 0.0][:AXES]
    return Read(placed.collection, Map(points, max(indexed, len(points)), (x, y)))


def _point(found: MapPoint, projection: Projection) -> Point:
    x, y = projection.place(found.cosines)
    excerpt = " ".join(found.excerpt.split())
    return Point(found.chunk_id, found.source, found.title, excerpt, x, y)


# Chunk sizes


def bin_width(least: int, most: int, *, bins: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that covers ``least`` to ``most`` with ``bins``.

    Bins begin at multiples of the width, so there may be one more than ``bins``.
    """
    scale = 1
    while True:
        for step in _BIN_STEPS:
            if step * scale * bins > most - least:
                return step * scale
        scale *= 10


# Growth


def finest(begun: int, updated: int) -> int:
    """Return the initial period length: an hour if the collection was filled quickly, or a day."""
    return HOUR if updated - begun <= _HOURLY else DAY


def grown(periods: Sequence[Period], *, period: int, most: int) -> Growth:
    """Merge periods into at most ``most``, of the shortest unit for which they suffice.

    Args:
        periods: Any number of periods of one length, in any order.
        period: That length, an hour or a day.
        most: Maximum number of periods; exceeded only if there are more years.
    """
    for unit, beginning in _BEGINNINGS.items():
        if unit == "hour" and period > HOUR:
            continue
        merged = _merged(periods, beginning)
        if len(merged) <= most:
            break
    return Growth(unit, tuple(merged[start] for start in sorted(merged)))


def _merged(
    periods: Sequence[Period], beginning: Callable[[datetime], datetime]
) -> Mapping[int, Period]:
    merged: dict[int, Period] = {}
    for each in periods:
        moment = datetime.fromtimestamp(each.start / 1000, tz=UTC).replace(minute=0, second=0)
        start = round(beginning(moment).timestamp() * 1000)
        known = merged.get(start, Period(start, 0, 0))
        merged[start] = Period(start, known.sources + each.sources, known.chunks + each.chunks)
    return merged


def _week(moment: datetime) -> datetime:
    return moment.replace(hour=0) - timedelta(days=moment.weekday())


_BEGINNINGS: Mapping[Unit, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment,
    "day": lambda moment: moment.replace(hour=0),
    "week": _week,
    "month": lambda moment: moment.replace(day=1, hour=0),
    "year": lambda moment: moment.replace(month=1, day=1, hour=0),
}
"""Start of the unit that contains an hour, by unit, shortest first."""


# Projection


@dataclass(frozen=True, slots=True)
class Projection:
    """The axes of greatest variance.

    Attributes:
        axes: Orthogonal unit vectors, greatest variance first, shape (k, d); ``k`` is less than
            :data:`AXES` if there are fewer vectors or dimensions.
        centre: Coordinate of the mean vector on each axis, shape (k,).
        explained: Share of the variance along each axis, shape (k,); 0 if there is no variance.
    """

    axes: Floats
    centre: Floats
    explained: Floats

    def place(self, coordinates: Sequence[float]) -> tuple[float, float]:
        """Return the point of a vector from its dot products with the axes; 0 on missing axes."""
        x, y = [*(np.asarray(coordinates) - self.centre), 0.0, 0.0][:AXES]
        return float(x), float(y)


def principal_axes(vectors: npt.ArrayLike) -> Projection:
    """Return the first principal components of vectors, shape (n, d), n > 0.

    Principal component analysis by the singular value decomposition of the centred vectors
    (Pearson, On Lines and Planes of Closest Fit to Systems of Points in Space, 1901; Jolliffe,
    Principal Component Analysis, 2002). The sign of an axis is chosen so that its greatest
    component is positive: the same vectors give the same map.
    """
    given = np.asarray(vectors, dtype=np.float64)
    mean = given.mean(axis=0)
    _, spread, components = np.linalg.svd(given - mean, full_matrices=False)
    axes = components[:AXES]
    greatest = np.abs(axes).argmax(axis=1)
    axes = axes * np.where(axes[np.arange(len(axes)), greatest] < 0, -1.0, 1.0)[:, None]
    variance = spread**2
    # Equal vectors leave nothing but rounding errors.
    varied = variance.sum() > len(given) * np.finfo(np.float32).eps ** 2
    explained = variance[:AXES] / variance.sum() if varied else np.zeros(len(axes))
    return Projection(axes, axes @ mean, explained)
