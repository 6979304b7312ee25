"""Judged sets and runs for these tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ability_search.extensions.evaluation.runs import (
    EvaluationRun,
    Indexing,
    Latency,
    ModeRun,
    Outcome,
    SetDescription,
    means,
)

CORPUS: list[dict[str, Any]] = [
    {"_id": "d1", "title": "Backup", "text": "Every night the archive is copied to a tape."},
    {"_id": "d2", "title": "Bread", "text": "The dough rests for an hour.", "metadata": {"n": 1}},
    {"_id": "d3", "title": "Soup", "text": "Onions are fried until golden."},
]
QUERIES: list[dict[str, Any]] = [
    {"_id": "q1", "text": "when is the archive copied", "category": "plain"},
    {"_id": "q2", "text": "how long does dough rest", "category": "plain"},
    {"_id": "q3", "text": "who won the race", "category": "none", "negative": True},
]
QRELS = [("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d3", 0)]


def write_set(
    directory: Path,
    corpus: Sequence[Mapping[str, Any]] = CORPUS,
    queries: Sequence[Mapping[str, Any]] = QUERIES,
    qrels: Sequence[tuple[str, str, int]] = QRELS,
    *,
    judgements: str = "qrels.tsv",
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (directory / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (directory / judgements).parent.mkdir(exist_ok=True)
    (directory / judgements).write_text("\n".join(lines) + "\n")
    return directory


def mode_run(values: Mapping[str, float], categories: Mapping[str, str] | None = None) -> ModeRun:
    """A mode in which each query has these values of every metric."""
    queries = {
        id: Outcome(
            text=f"text of {id}",
            category=(categories or {}).get(id),
            documents=["d1"],
            scores=[0.5],
            milliseconds=1.0,
            metrics={"nDCG@10": value, "Hit@1": float(value > 0)},
        )
        for id, value in values.items()
    }
    return ModeRun(
        metrics=means(queries),
        recall_curve={1: 0.25, 3: 0.5, 10: 0.75},
        milliseconds=Latency(median=1.0, p95=2.0),
        queries=queries,
        negatives={},
    )


def run_of(modes: Mapping[str, ModeRun], *, name: str = "run", digest: str = "0") -> EvaluationRun:
    return EvaluationRun(
        name=name,
        created="2026-01-02T03:04:05+00:00",
        versions={},
        dataset=SetDescription(
            name="set", digest=digest, documents=3, blank=0, queries=2, negatives=0, unjudged=0
        ),
        collection={"name": "c", "model": "m", "chunks": 3},
        settings={},
        options={},
        limit=100,
        concurrency=1,
        indexing=Indexing(seconds=0, added=0, failed=[]),
        modes=dict(modes),
    )
