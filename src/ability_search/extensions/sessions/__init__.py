"""The memory of an agent: scratchpads, tasks and what it was shown."""

from __future__ import annotations

from pydantic import Field

from ability_search.search.options import ChunkId, FieldName, QueryInput
from ability_search.wire import Input, NonBlank, Share


class Decay(Input):
    """Decay by age, and boost by use."""

    half_life_days: float = Field(
        365.0, gt=0, le=36_500, description="Half-life of a score, in days since indexing."
    )
    floor: Share = Field(0.3, description="Minimum factor at any age.")
    weight: Share = Field(1.0, description="0 has no effect, 1 the full effect.")
    field: FieldName = Field(
        "createdAt",
        description="Field with the date that age counts from: createdAt, when the text was"
        " indexed, or a metadata key (YYYY-MM-DD or RFC 3339); hits without it use createdAt.",
        examples=["metadata.published"],
    )
    agent_id: NonBlank | None = Field(
        None,
        max_length=128,
        description="Agent whose use counts: hits returned to its queries are recorded and score"
        " slightly higher for this agent only.",
    )
    useful: list[ChunkId] = Field(
        default_factory=list,
        max_length=256,
        description="ChunkIds of earlier hits that agentId found useful. The mark is recorded and"
        " counts like frequent use from the next query on; nothing is ever deleted.",
        examples=[["docs:guide/install.md:0"]],
    )
    not_useful: list[ChunkId] = Field(
        default_factory=list,
        max_length=256,
        description="ChunkIds of earlier hits that agentId found not useful; they score lower for"
        " this agent.",
    )


class DecayOptions(QueryInput):
    """The option ``decay`` of search-query."""

    decay: Decay | None = Field(
        None,
        description="Age lowers scores; use by an agent raises them.",
        examples=[{"halfLifeDays": 90}],
    )
