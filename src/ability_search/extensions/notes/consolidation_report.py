"""The report of a consolidation, as callers see it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from ability_search.extensions.notes.graph_analysis import Findings
from ability_search.wire import Result

LISTED: Final = 200
"""Findings of each kind that a report lists."""
Judge = Literal["rules", "chat"]
"""Rules alone, or a language model."""
Rule = Literal["negation", "antonyms", "numbers", "dates", "values"]
"""Rules that find contradictions."""


class Duplicate(Result):
    """A note that says what another one says."""

    source: str
    kept: str = Field(description="Source of the note that represents it: the longest of them.")
    cosine: float = Field(description="Least cosine of its chunks to those that they match.")
    share: float = Field(1.0, description="Share of the chunks of the kept note that match.")


class ContradictingNotes(Result):
    """Two notes that contradict each other."""

    source: str = Field(description="The newer note.")
    other: str = Field(description="The older note.")
    chunk_id: str = Field(description="The chunk of the newer note.")
    other_chunk_id: str
    rule: Rule | None = Field(None, description="The rule that found it; none if a model did.")
    judge: Judge = Field(
        "rules", description="chat: a language model says that they contradict each other."
    )
    statement: str = Field(description="What the newer note says.")
    other_statement: str
    differing: list[str] | None = Field(None, min_length=2, max_length=2)
    cosine: float


class StaleNote(Result):
    """A note that may no longer be true."""

    source: str
    chunk_id: str | None = Field(None, description="The chunk that is stale; none for all.")
    reason: Literal["superseded", "expired"]
    by: str | None = Field(None, description="Source of the newer note that contradicts it.")
    date: str | None = Field(None, description="Last day on which it was valid.")


class NoteLink(Result):
    """A link that is missing."""

    source: str
    target: str
    kind: str
    weight: float
    reason: str = Field(description="Cosine, rule or metadata field.")


class Consolidation(Findings):
    """Findings on the notes of a collection, its documents.

    Each list has the 200 findings of greatest cosine; the others are counted only.
    """

    notes: int = Field(description="Notes compared; those set aside before are not among them.")
    chunks: int = Field(description="Their chunks.")
    revision: int = Field(description="Revision of the collection that was read.")
    counts: dict[str, int] = Field(
        description="Number of duplicates, contradictions, stale notes and links."
    )
    duplicates: list[Duplicate]
    contradictions: list[ContradictingNotes]
    stale: list[StaleNote]
    links: list[NoteLink]
    judged: int = Field(0, description="Pairs of chunks that a language model judged.")
    warnings: list[str] | None = None
    applied: int = Field(0, description="Notes changed by apply.")
    undone: int = Field(0, description="Notes restored by undo.")
    took_ms: float = 0.0

    def listed(self) -> Consolidation:
        """Return the report with at most :data:`LISTED` findings in each list."""
        lists = ("duplicates", "contradictions", "stale", "links")
        return self.model_copy(update={name: getattr(self, name)[:LISTED] for name in lists})
