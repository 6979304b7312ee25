"""Overview of a collection: chunk sizes, growth and a map."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ability_search.collection import Collection
from ability_search.documents import KINDS, Floats, instant
from ability_search.errors import NotFound
from ability_search.extensions.notes.note_tools import (
    CollectionGrowth,
    CollectionMap,
    GrowthPeriod,
    MapPoint,
    TokenBin,
    TokenHistogram,
    Unit,
)
from ability_search.filters.tree import And, Compare, Exists, Not, OneOf, Or
from ability_search.filters.tree import Field as Property
from ability_search.store.pages import read_page
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.store.values import Chunks, Columns, Count, Page, Read, Sources

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
_INDEXED = Chunks(indexed=True)
_DOCUMENTS = And(
    (
        Compare(Property("chunks"), ">", 0),
        Or((Not(Exists(Property("of"))), Not(OneOf(Property("kind"), KINDS)))),
    )
)
"""Filter on sources: documents, which are no derived kinds."""
AXES = 2
MINUTE = 60_000
"""In milliseconds, as all durations here."""
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_MINUTELY, _HOURLY = 2 * HOUR, 3 * DAY
"""Longest histories that are counted by the minute, and by the hour."""


Charts = dict[str, TokenHistogram | CollectionGrowth | CollectionMap]
"""Charts by name: ``tokens``, ``growth``, ``map``."""


async def measure(
    store: Store, registry: Registry, collection: Collection, charts: Container[str], *, points: int
) -> Charts:
    """Measure a collection's live generation, without kinds.

    One read, two for a map.

    Args:
        store: The store.
        registry: Registry of the collections.
        collection: The collection.
        charts: Names of the requested charts, at least one.
        points: Maximum number of chunks on the map.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if the store does not answer.
    """

    async def ask(current: Collection) -> _Measured:
        return await _measure(store, current, charts, points)

    found = await registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.public_name)
    return found[1].charts


class _Measured(NamedTuple):
    """Charts, with the collection's record as it was when it was read."""

    current: Collection | None
    charts: Charts


async def _measure(
    store: Store, collection: Collection, charts: Container[str], points: int
) -> _Measured:
    chunks = collection.chunks - collection.kind_chunks
    fitted = min(_FITTED, max(2, _FITTED_NUMBERS // collection.dimensions))
    width = bin_width(collection.tokens_min or 0, collection.tokens_max or 0, bins=_BINS)
    period = finest(collection.created_at, collection.updated_at)
    sampled = chunks > _COUNTED
    size = _SAMPLE if sampled else None
    of = Chunks(indexed=True if sampled else None)
    documents, vectors = Sources(filter=_DOCUMENTS), Columns(("embedding",))
    asks: dict[str, Read | Count] = {
        "tokens": Count(of, collection, by="tokens", width=width, sample=size, current=True),
        "growth": Count(
            documents, collection, ["chunks"], by="indexed_at", width=period, current=True
        ),
        "map": Read(_INDEXED, collection, vectors, fitted, order="vector_key", current=True),
    }
    asks = {name: ask for name, ask in asks.items() if name in charts}
    answers = dict(zip(asks, await store.read(list(asks.values())), strict=True))
    current = next(iter(answers.values())).current
    found: Charts = {}
    for name, answer in answers.items():
        if isinstance(answer, Page):
            current, found[name] = await _map(store, collection, points, answer)
        elif name == "tokens":
            sizes = {least: n for least, (n,) in answer.groups.items() if least is not None}
            every = range(min(sizes), max(sizes) + width, width) if sizes else ()
            bins = [
                TokenBin(min_tokens=n, max_tokens=n + width - 1, chunks=sizes.get(n, 0))
                for n in every
            ]
            counted = sum(sizes.values())
            found[name] = TokenHistogram(bins=bins, counted=counted, sampled=sampled)
        else:
            periods = [
                (start, n[0], n[1]) for start, n in answer.groups.items() if start is not None
            ]
            found[name] = grown(periods, period=period, most=_PERIODS)
    return _Measured(current, found)


async def _map(
    store: Store, collection: Collection, most: int, sample: Page
) -> tuple[Collection | None, CollectionMap]:
    """Return the map of a collection, whose axes fit a sample of its vectors, and its record."""
    if not sample.items:
        nothing = CollectionMap(points=[], chunks=0, explained_variance=[0.0, 0.0])
        return sample.current, nothing
    projection = await asyncio.to_thread(principal_axes, [row["embedding"] for row in sample.items])
    axes = {f"axis{place}": axis for place, axis in enumerate(projection.axes.round(7).tolist())}
    columns = Columns(("chunk_id", "source", "title[:120]", "content[:160]"), axes)
    ask = Read(_INDEXED, collection, columns, most, order="vector_key", current=True)
    page = await read_page(store, ask)
    points = []
    for row in page.items:
        x, y = projection.place([row[axis] for axis in axes])
        point = MapPoint(
            chunk_id=row["chunk_id"],
            source=row["source"],
            title=row["title[:120]"],
            excerpt=" ".join(row["content[:160]"].split()),
            x=round(x, 4),
            y=round(y, 4),
        )
        points.append(point)
    explained = [round(share, 4) for share in [*projection.explained.tolist(), 0.0, 0.0][:AXES]]
    indexed = collection.chunks - collection.kind_chunks - collection.duplicates
    return page.current, CollectionMap(
        points=points, chunks=max(indexed, len(points)), explained_variance=explained
    )


# Chunk sizes


def bin_width(least: int, most: int, *, bins: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that covers ``least`` to ``most`` with ``bins``.

    Bins begin at multiples of the width, so there may be one more than ``bins``.
    """
    powers = accumulate(repeat(10), mul, initial=1)
    widths = (step * power for power in powers for step in _BIN_STEPS)
    return next(width for width in widths if width * bins > most - least)


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
    starts, *counted = np.array(periods, dtype=np.int64).reshape(-1, 3).T
    for unit, (code, offset) in _UNITS.items():
        if period > _SHORTEST.get(unit, DAY):
            continue
        moments = (starts + offset).astype("datetime64[ms]").astype(f"datetime64[{code}]")
        begins, places = np.unique(moments.astype("datetime64[ms]"), return_inverse=True)
        if len(begins) <= most:
            break
    totals = [np.bincount(places, each, len(begins)).astype(int).tolist() for each in counted]
    begun = (begins.astype(np.int64) - offset).tolist()
    return CollectionGrowth(
        unit=unit,
        periods=[
            GrowthPeriod(start=instant(start), sources=sources, chunks=chunks)
            for start, sources, chunks in zip(begun, *totals, strict=True)
        ],
    )


_UNITS: Mapping[Unit, tuple[str, int]] = {
    "minute": ("m", 0),
    "hour": ("h", 0),
    "day": ("D", 0),
    "week": ("W", 3 * DAY),  # those of numpy begin on Thursday
    "month": ("M", 0),
    "year": ("Y", 0),
}
"""Units of numpy, and what is added to a time before it is cut, shortest unit first."""
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
