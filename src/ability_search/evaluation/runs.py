"""A run: what the queries of a set found, mode by mode, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from ability_search.errors import InvalidInput
from kadi_client.tools import validation_text

METRICS = ("nDCG@10", "Recall@10", "Recall@100", "MRR@10", "Hit@1", "Hit@3", "Hit@5")
"""In the order they are shown; those beyond the ranks that were asked for are left out of a run."""


class _Record(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", allow_inf_nan=False
    )


class Outcome(_Record):
    """What one query found."""

    text: str
    category: str | None = None
    documents: list[str]
    """Best first."""
    scores: list[float]
    """Of each document, that of its best chunk."""
    milliseconds: float
    metrics: dict[str, float] = Field(default_factory=dict)
    """None for a query that has no answer."""
    warnings: list[str] = Field(default_factory=list)


class Latency(_Record):
    """Milliseconds that the client waited for an answer."""

    median: float
    p95: float


class ModeRun(_Record):
    """All queries in one mode."""

    metrics: dict[str, float]
    """Means over the queries."""
    recall_curve: dict[int, float]
    """Mean recall within the first ranks."""
    milliseconds: Latency
    queries: dict[str, Outcome]
    negatives: dict[str, Outcome]
    """Queries without an answer; they count in none of the means."""

    def by_category(self) -> dict[str, dict[str, Outcome]]:
        """The queries of each category, in the order of the set; none if it has no categories."""
        found: dict[str, dict[str, Outcome]] = {}
        for id, outcome in self.queries.items():
            if outcome.category is not None:
                found.setdefault(outcome.category, {})[id] = outcome
        return found


class SetDescription(_Record):
    """The judged set."""

    name: str
    digest: str
    documents: int
    blank: int
    queries: int
    negatives: int
    unjudged: int
    dated: int = 0
    """Queries that say when they are asked, whatever the options say."""


class Indexing(_Record):
    """What was done before the queries."""

    seconds: float
    added: int
    """Documents that were not stored yet."""
    failed: list[dict[str, str]]
    """Documents that could not be indexed: source, error, code."""


class Run(_Record):
    """A run as its file holds it."""

    format: Literal["ability-search-eval/1"] = "ability-search-eval/1"
    name: str
    created: str
    """RFC 3339."""
    versions: dict[str, str]
    dataset: SetDescription
    collection: dict[str, Any]
    """Name, model, dimensions, chunks and state, as ``search-collection-info`` told them."""
    settings: dict[str, Any]
    """Those of this machine that bear on the ranking, and how the corpus was indexed."""
    options: dict[str, Any]
    """Further fields of the queries."""
    limit: int
    """Documents ranked for each query."""
    concurrency: int
    """Queries under way at a time."""
    indexing: Indexing
    modes: dict[str, ModeRun]


def means(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Mean of each metric; none of no outcomes."""
    names = next(iter(outcomes.values())).metrics if outcomes else {}
    return {name: fmean(each.metrics[name] for each in outcomes.values()) for name in names}


def summary(run: Run) -> dict[str, Any]:
    """The run without its queries, and with the means of each category."""
    told = run.model_dump(
        mode="json", by_alias=True, exclude={"modes": {"__all__": {"queries", "negatives"}}}
    )
    for mode, found in run.modes.items():
        told["modes"][mode]["categories"] = {
            category: {"queries": len(outcomes), **means(outcomes)}
            for category, outcomes in found.by_category().items()
        }
        told["modes"][mode]["topScores"] = top_scores(found)
    return told


def top_scores(found: ModeRun) -> dict[str, float | None]:
    """How sure the first hit looks: the median with an answer, median and maximum without.

    ``None`` where there are no such queries; a query that found nothing counts as 0.
    """
    answered = [max(each.scores, default=0.0) for each in found.queries.values()]
    unanswered = [max(each.scores, default=0.0) for each in found.negatives.values()]
    return {
        "answered": median(answered) if answered else None,
        "unanswered": median(unanswered) if unanswered else None,
        "unansweredMax": max(unanswered, default=None),
    }


def write_run(run: Run, path: Path) -> None:
    """Write the file of a run, its directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(run.model_dump_json(by_alias=True) + "\n", encoding="utf-8")


def read_run(path: Path) -> Run:
    """Read the file of a run.

    Raises:
        InvalidInput: if it is none.
    """
    try:
        return Run.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise InvalidInput(str(path), exc.strerror or "cannot be read") from exc
    except ValidationError as exc:
        raise InvalidInput(
            str(path),
            f"is not a run: {validation_text(exc)[:500]}",
            hint="Give files that `ability-search eval DIR --output FILE` wrote.",
        ) from exc
