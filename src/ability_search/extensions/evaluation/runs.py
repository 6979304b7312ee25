"""Runs: the hits of the queries of a set in each mode, and their metrics."""

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
"""In the order of the output; a run omits those with a cutoff beyond its limit."""


class _RunRecord(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", allow_inf_nan=False
    )


class Outcome(_RunRecord):
    """The hits and metrics of one query."""

    text: str
    category: str | None = None
    documents: list[str]
    """Best first."""
    scores: list[float]
    """Score of each document's best chunk."""
    milliseconds: float
    metrics: dict[str, float] = Field(default_factory=dict)
    """Empty for a query without an answer."""
    warnings: list[str] = Field(default_factory=list)


class Latency(_RunRecord):
    """Latency seen by the client, in milliseconds."""

    median: float
    p95: float


class ModeRun(_RunRecord):
    """The outcomes of all queries in one mode."""

    metrics: dict[str, float]
    """Means over the queries."""
    recall_curve: dict[int, float]
    """Rank -> mean recall at that rank."""
    milliseconds: Latency
    queries: dict[str, Outcome]
    negatives: dict[str, Outcome]
    """Queries without an answer; excluded from all means."""

    def by_category(self) -> dict[str, dict[str, Outcome]]:
        """Return the queries by category, in the order of the set; empty without categories."""
        found: dict[str, dict[str, Outcome]] = {}
        for id, outcome in self.queries.items():
            if outcome.category is not None:
                found.setdefault(outcome.category, {})[id] = outcome
        return found


class SetDescription(_RunRecord):
    """The description of a judged set."""

    name: str
    digest: str
    """SHA-256 of its three files."""
    documents: int
    blank: int
    """Number of documents without text, which cannot be found."""
    queries: int
    """Number of queries with a relevant document."""
    negatives: int
    unjudged: int
    """Number of queries without judgements, which are skipped."""
    dated: int = 0
    """Number of queries with their own date."""


class Indexing(_RunRecord):
    """The result of indexing before the queries."""

    seconds: float
    added: int
    """Documents that were not indexed yet."""
    failed: list[dict[str, str]]
    """Documents that could not be indexed: source, error, code."""


class EvaluationRun(_RunRecord):
    """A run, as stored in its file."""

    format: Literal["ability-search-eval/1"] = "ability-search-eval/1"
    name: str
    created: str
    """RFC 3339."""
    versions: dict[str, str]
    dataset: SetDescription
    collection: dict[str, Any]
    """Name, model, dimensions, chunks and state, from ``search-collection-info``."""
    settings: dict[str, Any]
    """The ranking settings of this machine, and the indexing settings of the corpus."""
    options: dict[str, Any]
    """Additional fields of the queries."""
    limit: int
    """Documents ranked per query."""
    concurrency: int
    """Concurrent queries."""
    indexing: Indexing
    modes: dict[str, ModeRun]


def means(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the mean of each metric; empty if there are no outcomes."""
    names = next(iter(outcomes.values())).metrics if outcomes else {}
    return {name: fmean(each.metrics[name] for each in outcomes.values()) for name in names}


def summary(run: EvaluationRun) -> dict[str, Any]:
    """Return the run as JSON without its queries, but with the means of each category."""
    shown = run.model_dump(
        mode="json", by_alias=True, exclude={"modes": {"__all__": {"queries", "negatives"}}}
    )
    for mode, found in run.modes.items():
        shown["modes"][mode]["categories"] = {
            category: {"queries": len(outcomes), **means(outcomes)}
            for category, outcomes in found.by_category().items()
        }
        shown["modes"][mode]["topScores"] = top_scores(found)
    return shown


def top_scores(found: ModeRun) -> dict[str, float | None]:
    """Return the scores of first hits: the median with an answer, median and maximum without.

    ``None`` if there are no such queries; a query without hits counts as 0.
    """
    answered = [max(each.scores, default=0.0) for each in found.queries.values()]
    unanswered = [max(each.scores, default=0.0) for each in found.negatives.values()]
    return {
        "answered": median(answered) if answered else None,
        "unanswered": median(unanswered) if unanswered else None,
        "unansweredMax": max(unanswered, default=None),
    }


def write_run(run: EvaluationRun, path: Path) -> None:
    """Write the file of a run; create its directory if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(run.model_dump_json(by_alias=True) + "\n", encoding="utf-8")


def read_run(path: Path) -> EvaluationRun:
    """Read the file of a run.

    Raises:
        InvalidInput: if the file cannot be read or is not a run.
    """
    try:
        return EvaluationRun.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise InvalidInput(str(path), exc.strerror or "cannot be read") from exc
    except ValidationError as exc:
        raise InvalidInput(
            str(path),
            f"is not a run: {validation_text(exc)[:500]}",
            hint="Expected a file written by `ability-search eval DIR --output FILE`.",
        ) from exc
