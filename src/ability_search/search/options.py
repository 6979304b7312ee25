"""A query as the caller writes it: one model for each option, with its default and description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ability_search.wire import Count, Input, Model, NonBlank, Share

FieldName = Annotated[
    NonBlank,
    Field(
        max_length=256,
        description="source, title, content, kind, createdAt; any other name is a metadata key,"
        " with or without the prefix metadata.",
    ),
]
ChunkId = Annotated[NonBlank, Field(max_length=4200)]
Mode = Literal["semantic", "keyword", "hybrid"]
Kind = Literal["title", "summary", "keywords", "propositions", "documents"]


class Fusion(Input):
    """Fusion of the results of several retrievers."""

    method: Literal["convex", "rrf"] = Field(
        description="Convex combination, or reciprocal rank fusion."
    )
    k: float | None = Field(None, ge=0, le=10_000, description="Rank constant of rrf.")
    weights: dict[Literal["semantic", "keyword"], Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Weights of the retrievers.",
        examples=[{"semantic": 0.7, "keyword": 0.3}],
    )


class FullText(Input):
    """Full-text search over chosen fields, blended into the score."""

    enabled: bool = Field(True, description="false turns it off.")
    weight: Share = Field(0.3, description="Share of the score; 0 has no effect.")
    fields: list[FieldName] = Field(
        default_factory=lambda: ["title", "content"],
        min_length=1,
        max_length=16,
        description="Fields to search: title, content, metadata.<key>. Of metadata, texts and lists"
        " of texts, the first 128 words per key.",
        examples=[["title", "metadata.tags"]],
    )
    language: str | None = Field(
        None,
        max_length=64,
        description="Language of the query words; must be the collection's, because texts are"
        " analyzed at indexing time.",
    )


class Rules(Input):
    """Conditions on the value of a field."""

    contains: NonBlank | None = Field(
        None, max_length=1024, description="Text that the value contains, ignoring case."
    )
    priority: StrictBool | StrictInt | StrictFloat | StrictStr | None = Field(
        None, description="Value to equal; in a list, any element."
    )
    sort: Literal["asc", "desc"] | None = Field(
        None, description="The first values in this order gain most; texts, numbers and dates."
    )


class FieldRule(Input):
    """Rules on one field; each that matches multiplies the score by (1 + weight)."""

    weight: float = Field(0.5, ge=0, le=100, description="0 has no effect.")
    rules: Rules = Field(description="At least one rule.", examples=[{"priority": "stable"}])


class Reranker(Input):
    """A model that reads query and chunk together, for the first hits."""

    model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured model."
    )
    top: Count = Field(
        20, ge=1, le=200, description="Hits to rerank, from all collections together."
    )


class Feedback(Input):
    """Pseudo-relevance feedback: words and vectors of the first hits join the query."""

    chunks: Count = Field(3, ge=1, le=20, description="Maximum number of feedback hits.")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(
        0.35,
        description="Minimum cosine of a feedback hit, in keyword mode its normalized score. If no"
        " hit reaches it, the query is unchanged.",
    )
    terms: Count = Field(12, ge=0, le=64, description="Maximum words added to the keyword search.")
    weight: Share = Field(0.5, description="Weight of the feedback relative to the query itself.")


class Temporal(Input):
    """Weight of dates if the query, timeRange or order asks for a time."""

    weight: Share | None = Field(
        None,
        description="Share of dates in the score; 0 ignores times, in the query too. Default:"
        " depends on how informative the other words are.",
    )
    sigma_days: float = Field(
        15.0,
        gt=0,
        le=36_500,
        description="Standard deviation of closeness to the period, in days.",
    )
    order: Literal["newest", "oldest"] | None = Field(
        None,
        description="Which of equally relevant hits come first, like 'latest X' and 'oldest X' in a"
        " query. Compares the dates that texts name, else when they were stored.",
    )


class TimeRange(Input):
    """A period that hits should be about; at least one end."""

    start: NonBlank | None = Field(
        None,
        alias="from",
        max_length=32,
        description="First day: YYYY-MM-DD, or an instant on it (RFC 3339). Default: open.",
        examples=["2026-01-01"],
    )
    end: NonBlank | None = Field(
        None,
        alias="to",
        max_length=32,
        description="Last day: YYYY-MM-DD, or an instant on it (RFC 3339). Default: open.",
        examples=["2026-03-31"],
    )


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


class Expand(Input):
    """Context expansion: text around each hit."""

    mode: Literal["neighbors", "section"] = Field(
        "neighbors", description="Adjacent chunks, or the whole section (same headings)."
    )
    window: Count = Field(1, ge=1, le=10, description="Chunks on each side, for neighbors.")


class ExpandQuery(Input):
    """Query expansion by a language model, if the network has one."""

    method: Literal["terms", "stepBack"] = Field(
        "terms", description="Related words, or a more general question."
    )
    model: str | None = Field(
        None, min_length=1, max_length=256, description="Default: the configured model."
    )
    below: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Expand only queries whose relevance is below. Default: every query; auto is"
        " 0.4.",
    )


Collections = str | Annotated[list[str], Field(min_length=1, max_length=1000)]


class QueryInput(Input):
    """Input of search-query."""

    collection: Collections = Field(
        description="A collection, a list of collections, or * for all of them.",
        examples=["docs", ["docs", "notes"], "*"],
    )
    query: NonBlank = Field(description="What to search for.", examples=["how do I install it"])
    queries: list[NonBlank] = Field(
        default_factory=list,
        max_length=8,
        description="Further phrasings of the query, each searched like it; their rankings are"
        " fused. Highlights and the reranker use the query itself.",
        examples=[["installation steps", "set it up on Linux"]],
    )
    limit: Count = Field(10, ge=1, description="Maximum number of results.")
    offset: Count = Field(0, ge=0, le=10_000, description="Number of results to skip.")
    mode: Mode = Field(
        "hybrid",
        description="semantic: by embedding; keyword: by words (exact BM25); hybrid: both.",
    )
    model: Model = None
    filter: dict[str, Any] | None = Field(
        None,
        description="Filter on chunks: $and $or $not over conditions on source, title, kind,"
        " createdAt, metadata.*.",
        examples=[{"metadata.lang": "en", "metadata.year": {"$gte": 2024}}],
    )
    sources: list[NonBlank] | None = Field(
        None,
        max_length=256,
        description="Globs: search only sources that match one. An empty list is an error.",
        examples=[["guide/**"]],
    )
    exclude_sources: list[NonBlank] = Field(
        default_factory=list,
        max_length=256,
        description="Globs: sources that match one are excluded; they never leave the database.",
        examples=[["drafts/**", "**/CHANGELOG.md"]],
    )
    min_score: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Minimum cosine, scores.semantic of a hit, in semantic and hybrid mode; minimum"
        " normalized BM25 score in keyword mode and if no embedder answers, with a warning.",
        examples=[0.3],
    )
    min_signals: Count | None = Field(
        None,
        ge=1,
        le=16,
        description="Minimum number of retrievers that found a hit, as matchedVia lists them, each"
        " among its first candidates.",
        examples=[2],
    )
    hypothetical_answer: NonBlank | None = Field(
        None,
        description="Hypothetical answer to embed instead of the query (HyDE).",
        examples=["The archive is copied to tape every night at two."],
    )
    fusion: Fusion | None = Field(
        None,
        description="Fusion of semantic and keyword results. Default: as configured.",
        examples=[{"method": "convex", "weights": {"semantic": 0.5, "keyword": 0.5}}],
    )
    full_text: FullText | None = Field(
        None,
        description="Full-text search over chosen fields, blended into the score.",
        examples=[{"weight": 0.3, "fields": ["title", "metadata.tags"]}],
    )
    rerank: dict[FieldName, FieldRule] = Field(
        default_factory=dict,
        max_length=16,
        description="Rules on fields that boost scores.",
        examples=[
            {
                "metadata.category": {"weight": 0.5, "rules": {"contains": "security"}},
                "createdAt": {"weight": 0.3, "rules": {"sort": "desc"}},
            }
        ],
    )
    reranker: Reranker | None = Field(
        None, description="Rerank the first hits with a model.", examples=[{"top": 20}]
    )
    extended: list[Kind] = Field(
        default_factory=list,
        description="Kinds to search: a hit on the title, summary, ... of a document returns the"
        " document, scored by its best kind; documents are the chunks themselves.",
        examples=[["title", "summary", "documents"]],
    )
    prf: Feedback | bool | None = Field(
        None,
        description="Pseudo-relevance feedback: search again with words and vectors of the first"
        " hits.",
        examples=[True, {"chunks": 3, "terms": 12}],
    )
    understand: bool = Field(
        True,
        description="Recognise times (last March, before 2024, latest) and exclusions"
        " (besides X) in the query; false takes it literally.",
    )
    temporal: Temporal | None = Field(
        None,
        description="Weight of dates if the query or timeRange names a time; order in time.",
        examples=[{"weight": 0.5, "sigmaDays": 15}, {"order": "newest"}],
    )
    time_range: TimeRange | None = Field(
        None,
        description="Prefer chunks about this period; overrides times in the query. Chunks without"
        " a date count half, by when they were indexed.",
        examples=[{"from": "2026-01-01", "to": "2026-03-31"}],
    )
    as_of: NonBlank | None = Field(
        None,
        max_length=64,
        description="Time of the query: YYYY-MM-DD, the end of that day in UTC, or an instant"
        " (RFC 3339). Times in the query and ages in decay are relative to it. Documents indexed"
        " later are not excluded (filter by createdAt for that). Default: now.",
        examples=["2026-03-25", "2026-03-25T09:30:00+01:00"],
    )
    exclude: list[Annotated[NonBlank, Field(max_length=1024)]] = Field(
        default_factory=list,
        max_length=16,
        description="Phrases that hits should not be about, in addition to exclusions in the query;"
        " such hits are demoted, not removed (use excludeSources for that).",
        examples=[["pagination"]],
    )
    decay: Decay | None = Field(
        None,
        description="Age lowers scores; use by an agent raises them.",
        examples=[{"halfLifeDays": 90}],
    )
    graph: Graph | None = Field(
        None,
        description="Graph expansion: neighbours of the first hits join the results and gain score"
        " from them.",
        examples=[{"hops": 1}],
    )
    boost: Boost | None = Field(
        None,
        description="Boost central or novel chunks; the score is multiplied by (1 + sum of weight *"
        " value) / (1 + sum of weights). Analyse the collection before: search-reindex with"
        " analyze.",
        examples=[{"centrality": 0.1}],
    )
    diversity: Share | None = Field(
        None,
        description="Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only.",
        examples=[0.7],
    )
    max_per_source: Count | None = Field(
        None,
        ge=1,
        description="Maximum hits per source of a collection; other hits take their places.",
        examples=[2],
    )
    expand: Expand | Literal["neighbors", "section"] | None = Field(
        None,
        description="Context expansion: return the text around each hit; adjacent hits are merged.",
        examples=["neighbors", {"mode": "neighbors", "window": 2}],
    )
    max_result_tokens: Count | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Token budget for the whole answer; what does not fit is left out and named in"
        " budget. The smallest answer has about 400 tokens.",
        examples=[2000],
    )
    expand_query: ExpandQuery | Literal["auto"] | bool = Field(
        False,
        description="Query expansion: let a language model add words to the query; auto: to vague"
        " queries only.",
        examples=[True, "auto", {"method": "stepBack"}],
    )
    highlights: bool = Field(False, description="Return the matched places of each hit.")
    explain: bool = Field(False, description="Return how each score was computed.")
