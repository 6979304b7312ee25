"""The analysis of a collection's graph, as callers see it, and the nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from ability_search.wire import Result


@dataclass(frozen=True, slots=True)
class NoteChunk:
    """A chunk of a note: a node of the graph of its collection."""

    chunk_id: str
    source: str
    title: str
    chunk_index: int
    text: str = ""
    """Its content, if notes are compared."""
    day: int = 0
    """Day of its note, if notes are compared."""


def six_digits(value: float) -> float:
    """Round a value to six significant digits."""
    return float(f"{value:.6g}")


_SOURCES = ("source", "other", "kept", "by", "target")
"""Fields of a finding that name a source."""


class Findings(Result):
    """Lists of findings on sources."""

    def of_sources(self, shown: Callable[[str], bool]) -> Self:
        """Return the same without the findings that name a source that is not shown."""

        def visible(found: object) -> bool:
            sources = (getattr(found, name, None) for name in _SOURCES)
            return all(source is None or shown(source) for source in sources)

        lists = {name: value for name, value in self if isinstance(value, list)}
        kept = {name: list(filter(visible, found)) for name, found in lists.items()}
        return self.model_copy(update=kept)


class RankedChunk(Result):
    """A chunk with its value of a measure."""

    chunk_id: str
    source: str
    title: str
    value: float


class ComponentSize(Result):
    """Connected components of one size."""

    chunks: int = Field(description="Chunks in each.")
    components: int


class Spectrum(Result):
    """The weakest link of the largest component, from the Laplacian of its graph."""

    chunks: int = Field(description="Chunks in the component.")
    gap: float = Field(
        description="Second smallest eigenvalue: the smaller, the more easily the component falls"
        " into two parts."
    )
    converged: bool = Field(description="If false, the gap is an upper bound.")
    sides: list[int] = Field(
        min_length=2, max_length=2, description="Chunks with a positive and a negative component."
    )


class NoveltySpectrum(Result):
    """The covariance of the vectors compared with that of noise (Marchenko and Pastur)."""

    variance: float = Field(description="Mean variance of a dimension.")
    edge: float = Field(description="Greatest eigenvalue of noise.")
    outliers: list[float] = Field(description="Eigenvalues above the edge, greatest first.")


class DrawnChunk(Result):
    """A node of the drawing."""

    chunk_id: str
    source: str
    x: float
    y: float
    centrality: float = Field(description="Relative to the greatest PageRank.")
    component: int = Field(description="0 is the largest.")
    side: int = Field(description="-1 or 1: side of the weakest link; 0 in other components.")


class DrawnEdge(Result):
    """An edge of the drawing."""

    start: int = Field(description="Place in nodes.")
    end: int
    kind: str


class Drawing(Result):
    """The most central chunks along the first two principal components of their vectors."""

    nodes: list[DrawnChunk]
    edges: list[DrawnEdge]

    def of_sources(self, shown: Callable[[str], bool]) -> Drawing:
        """Return the drawing without the chunks of sources that are not shown."""
        kept = [place for place, node in enumerate(self.nodes) if shown(node.source)]
        new = {place: index for index, place in enumerate(kept)}
        return Drawing(
            nodes=[self.nodes[place] for place in kept],
            edges=[
                DrawnEdge(start=new[edge.start], end=new[edge.end], kind=edge.kind)
                for edge in self.edges
                if edge.start in new and edge.end in new
            ],
        )


class GraphAnalysis(Findings):
    """Analysis of the graph of a collection's chunks; each list has the greatest values first."""

    chunks: int
    revision: int = Field(description="Revision of the collection that was analysed.")
    edges: dict[str, int] = Field(
        description="Number of edges of each kind: link, tags, session, order, similarity."
    )
    components: list[ComponentSize] = Field(description="All components, largest first.")
    isolated: list[RankedChunk] = Field(
        description="Chunks without an edge, the most surprising first."
    )
    spectrum: Spectrum
    central: list[RankedChunk] = Field(description="By PageRank; all chunks together have 1.")
    bridges: list[RankedChunk] = Field(
        description="By betweenness: share of the shortest paths that pass through."
    )
    hubs: list[RankedChunk] = Field(
        description="Of the tenth with the most edges, by the entropy of their kinds, in nats."
    )
    boundary: list[RankedChunk] = Field(
        description="By distance from the weakest link: smallest absolute component of the Fiedler"
        " vector first."
    )
    novelty: NoveltySpectrum
    novel: list[RankedChunk] = Field(description="By novelty, from 0 to 1.")
    surprising: list[RankedChunk] = Field(
        description="By surprisal in the graph of five nearest neighbours, in nats."
    )
    drawing: Drawing
    took_ms: float

    def of_sources(self, shown: Callable[[str], bool]) -> Self:
        """Return the analysis without the chunks of sources that are not shown."""
        drawing = self.drawing.of_sources(shown)
        return super().of_sources(shown).model_copy(update={"drawing": drawing})
