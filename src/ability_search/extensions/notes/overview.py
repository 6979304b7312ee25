"""Overview of a collection: chunk sizes, growth and a map."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from ability_search.collection import Collection
from ability_search.documents import Floats, instant
from ability_search.errors import NotFound
from ability_search.extensions.notes.charts import (
    CollectionGrowth,
    CollectionMap,
    GrowthPeriod,
    MapPoint,
    TokenBin,
    TokenHistogram,
    Unit,
)
from ability_search.store import records
from ability_search.store.port import CopyStore
from ability_search.store.records import OverviewAnswer, OverviewRequest, Read
from ability_search.store.registry import Registry

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
MINUTE = 60_000
"""In milliseconds, as all durations here."""
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_MINUTELY, _HOURLY = 2 * HOUR, 3 * DAY
"""Longest histories that are counted by the minute, and by the hour."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested parts of an overview."""

    tokens: bool = False
    growth: bool = False
    points: int | None = None
    """Maximum number of chunks on the map; ``None`` for no map."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The requested parts."""

    tokens: TokenHistogram | None = None
    growth: CollectionGrowth | None = None
    map: CollectionMap | None = None


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
    chunks = collection.chunks - collection.kind_chunks
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
    tokens = _histogram(read.value, width, sampled=chunks > counted) if wanted.tokens else None
    growth = None
    if wanted.growth:
        growth = grown(read.value.periods, period=period, most=_PERIODS)
    if wanted.points is None:
        return Read(read.collection, Overview(tokens, growth))
    mapped = await _map(store, collection, request.indexed, wanted.points, read)
    return Read(mapped.collection, Overview(tokens, growth, mapped.value))


def _histogram(answer: OverviewAnswer, width: int, *, sampled: bool) -> TokenHistogram:
    found = answer.sizes
    every = range(min(found), max(found) + width, width) if found else ()
    bins = [
        TokenBin(min_tokens=least, max_tokens=least + width - 1, chunks=found.get(least, 0))
        for least in every
    ]
    return TokenHistogram(bins=bins, counted=sum(found.values()), sampled=sampled)


async def _map(
    store: CopyStore, collection: Collection, indexed: int, most: int, read: Read[OverviewAnswer]
) -> Read[CollectionMap]:
    if not read.value.vectors:
        nothing = CollectionMap(points=[], chunks=0, explained_variance=[0.0, 0.0])
        return Read(read.collection, nothing)
    projection = await asyncio.to_thread(principal_axes, read.value.vectors)
    placed = await store.map_points(
        collection, projection.axes.round(7).tolist(), limit=most, indexed=indexed
    )
    points = [_point(each, projection) for each in placed.value]
    explained = [round(share, 4) for share in [*projection.explained.tolist(), 0.0, 0.0][:AXES]]
    drawn = CollectionMap(
        points=points, chunks=max(indexed, len(points)), explained_variance=explained
    )
    return Read(placed.collection, drawn)


def _point(found: records.MapPoint, projection: Projection) -> MapPoint:
    x, y = projection.place(found.cosines)
    return MapPoint(
        chunk_id=found.chunk_id,
        source=found.source,
        title=found.title,
        excerpt=" ".join(found.excerpt.split()),
        x=round(x, 4),
        y=round(y, 4),
    )


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
    """Return the initial period length: the shorter, the more quickly the collection was filled."""
    if updated - begun <= _MINUTELY:
        return MINUTE
    return HOUR if updated - begun <= _HOURLY else DAY


def grown(periods: Sequence[tuple[int, int, int]], *, period: int, most: int) -> CollectionGrowth:
    """Merge periods into at most ``most``, of the shortest unit for which they suffice.

    A week begins on Monday.

    Args:
        periods: The start in epoch milliseconds, the sources and the chunks of any number of
            periods of one length, in any order.
        period: That length: a minute, an hour or a day.
        most: Maximum number of periods; exceeded only if there are more years.
    """
    for unit, beginning in _BEGINNINGS.items():
        if period > _SHORTEST.get(unit, DAY):
            continue
        merged = _merged(periods, beginning)
        if len(merged) <= most:
            break
    return CollectionGrowth(
        unit=unit,
        periods=[
            GrowthPeriod(start=instant(start), sources=sources, chunks=chunks)
            for start, (sources, chunks) in sorted(merged.items())
        ],
    )


def _merged(
    periods: Sequence[tuple[int, int, int]], beginning: Callable[[datetime], datetime]
) -> Mapping[int, tuple[int, int]]:
    merged: dict[int, tuple[int, int]] = {}
    for start, sources, chunks in periods:
        moment = datetime.fromtimestamp(start / 1000, tz=UTC)
        begun = round(beginning(moment).timestamp() * 1000)
        known = merged.get(begun, (0, 0))
        merged[begun] = (known[0] + sources, known[1] + chunks)
    return merged


def _week(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0) - timedelta(days=moment.weekday())


_BEGINNINGS: Mapping[Unit, Callable[[datetime], datetime]] = {
    "minute": lambda moment: moment,
    "hour": lambda moment: moment.replace(minute=0),
    "day": lambda moment: moment.replace(hour=0, minute=0),
    "week": _week,
    "month": lambda moment: moment.replace(day=1, hour=0, minute=0),
    "year": lambda moment: moment.replace(month=1, day=1, hour=0, minute=0),
}
"""Start of the unit that contains a minute, by unit, shortest first."""
_SHORTEST: Mapping[Unit, int] = {"minute": MINUTE, "hour": HOUR}
"""Longest period that a unit can be counted from."""
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
