"""What was found -> what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ability_search.analysis import analyzer_for
from ability_search.catalogue import Collection
from ability_search.highlights import highlights
from ability_search.querying.candidates import Plan, Pool
from ability_search.querying.model import Candidate, Degradation, Hit, Mode, Query, QueryAnswer


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate and where it was found."""

    collection: Collection
    candidate: Candidate


def hit(found: Found, row: Mapping[str, Any], query: Query) -> Hit:
    """A candidate with its row and what the query wants to know of it."""
    item = found.candidate
    raw = {"semantic": item.cosine, "keyword": item.bm25}
    marks = None
    if query.highlights:
        analyzer = analyzer_for(found.collection.language)
        marks = tuple(highlights(row["content"], analyzer.query_terms(query.text), analyzer))
    return Hit(
        collection=found.collection.public_name,
        row=row,
        score=item.score,
        scores={name: score for name, score in raw.items() if score is not None},
        matched_via=tuple(item.ranks),
        highlights=marks,
        trace=item.trace if query.explain else None,
    )


def note_failed_arms(pool: Pool, answer: QueryAnswer) -> None:
    """Say which arms could not be searched, and what that made of the answer."""
    for arm, reason in pool.failed.items():
        other: Mode = "keyword" if arm == "semantic" else "semantic"
        answer.warnings.append(f"the {arm} arm could not be searched: {reason}")
        answer.degraded = answer.degraded or Degradation(reason, "database_unavailable", other)


def explanation(pool: Pool, plan: Plan, query: Query) -> dict[str, Any]:
    """How the candidates were found, for ``explain``."""
    terms = plan.terms
    return {
        "arms": list(plan.arms),
        "candidates": len(pool.candidates),
        "candidatesPerArm": plan.depths[-1],
        "vectorSearch": None
        if plan.vector is None
        else "scan"
        if plan.exact(pool.collection)
        else "graph",
        "terms": None if terms is None else len(terms.ids),
        "generation": pool.collection.generation,
        "revision": pool.collection.revision,
        "filtered": query.predicate is not None,
    }


def merge(merged: QueryAnswer, name: str, answer: QueryAnswer) -> None:
    """Take one collection's answer into that of several."""
    merged.hyde = merged.hyde or answer.hyde
    merged.degraded = merged.degraded or answer.degraded
    merged.warnings += [f"{name}: {warning}" for warning in answer.warnings]
    for step, took in answer.timings.items():
        merged.timings[step] = max(took, merged.timings.get(step, 0.0))
    if answer.explain:
        merged.explain[name] = answer.explain
