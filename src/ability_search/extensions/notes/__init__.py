"""Analysis of a collection: the graph of its chunks, and the geometry of their vectors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ability_search.search.options import QueryInput
from ability_search.wire import Count, Input, NonBlank


class Graph(Input):
    """Graph expansion: neighbours of the first hits over links and chunk order."""

    hops: Count = Field(1, ge=1, le=3, description="Maximum number of hops.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.55, description="Minimum cosine of a neighbour."
    )
    kinds: list[NonBlank] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Kinds of links to follow. Default: all, and the order of chunks.",
        examples=[["derives_from", "references"]],
    )


class Boost(Input):
    """Weights of values that an analysis of the collection stored with its chunks."""

    centrality: float = Field(
        0.0, ge=0, le=100, description="Share of the chunks with a smaller PageRank; 0: no effect."
    )
    novelty: float = Field(
        0.0, ge=0, le=100, description="Distance from what is noise in all vectors; 0: no effect."
    )


class GraphOptions(QueryInput):
    """The options ``graph`` and ``boost`` of search-query."""

    graph: Graph | None = Field(
        None,
        description="Graph expansion: neighbours of the first hits join the results and gain score"
        " from them.",
        examples=[{"hops": 1}],
    )
    boost: Boost | None = Field(
        None,
        description="Boost central or novel chunks; the score is multiplied by (1 + sum of weight *"
        " value) / (1 + sum of weights). Analyse the collection before: notes-analyze.",
        examples=[{"centrality": 0.1}],
    )
