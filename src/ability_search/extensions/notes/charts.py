"""The charts of a collection: token histogram, growth, and map."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ability_search.wire import Result

Unit = Literal["minute", "hour", "day", "week", "month", "year"]


class TokenBin(Result):
    """Number of chunks in a size range."""

    min_tokens: int
    max_tokens: int
    chunks: int


class TokenHistogram(Result):
    """Histogram of chunk sizes of documents, without titles, summaries, ..."""

    bins: list[TokenBin] = Field(description="Smallest first, including empty bins in between.")
    counted: int = Field(description="Chunks in all bins.")
    sampled: bool = Field(description="Whether only a sample of the chunks was counted.")


class GrowthPeriod(Result):
    """Counts of what was indexed in a period of time."""

    start: str
    sources: int
    chunks: int


class CollectionGrowth(Result):
    """Times at which the stored documents were indexed, without titles, summaries, ..."""

    unit: Unit
    periods: list[GrowthPeriod] = Field(description="In UTC, oldest first, without empty periods.")


class MapPoint(Result):
    """A chunk on the map."""

    chunk_id: str
    source: str
    title: str
    excerpt: str = Field(description="Beginning of its content.")
    x: float
    y: float


class CollectionMap(Result):
    """Map of the chunks' vectors along their first two principal components."""

    points: list[MapPoint]
    chunks: int = Field(
        description="Chunks in the vector index. If there are fewer points, they are a sample,"
        " always the same one."
    )
    explained_variance: list[float] = Field(
        min_length=2, max_length=2, description="Share of the variance along x and y."
    )
