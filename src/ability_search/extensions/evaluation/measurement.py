"""The metrics of rankings.

They are computed by ir-measures, which calls the code of trec_eval. The gain of nDCG is the grade,
discounted by log2(rank + 1); all other metrics count a document as relevant from grade 1. Only the
order of a ranking is passed on, so that equal scores do not change it.

Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, 2002 (nDCG); Voorhees,
*The TREC-8 Question Answering Track Report*, 1999 (MRR).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

import ir_measures
import numpy as np
from ir_measures import RR, R, Success, nDCG

from ability_search.extensions.evaluation.judged_sets import Dataset, Qrels
from ability_search.extensions.evaluation.runs import METRICS, Latency, ModeRun, Outcome, means

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Ranks of the recall curve."""

_MEASURES = {"nDCG": nDCG, "Recall": R, "MRR": RR, "Hit": Success}

K = TypeVar("K")
Rankings = Mapping[str, Sequence[str]]
"""Query -> its documents, best first, without duplicates."""


def measured(dataset: Dataset, outcomes: Mapping[str, Outcome], *, limit: int) -> ModeRun:
    """Return the run of a mode; the metrics of its outcomes are set.

    Args:
        dataset: The set.
        outcomes: The outcomes of all its queries, by id.
        limit: Documents ranked for each query.
    """
    answered = {query.id: outcomes[query.id] for query in dataset.queries}
    rankings = {id: outcome.documents for id, outcome in answered.items()}
    for id, metrics in per_query(dataset.qrels, rankings, limit=limit).items():
        answered[id].metrics = metrics
    times = [outcome.milliseconds for outcome in outcomes.values()]
    median, p95 = np.percentile(times, [50, 95]).tolist()
    return ModeRun(
        metrics=means(answered),
        recall_curve=recall_curve(dataset.qrels, rankings, limit=limit),
        milliseconds=Latency(median=round(median, 2), p95=round(p95, 2)),
        queries=answered,
        negatives={query.id: outcomes[query.id] for query in dataset.negatives},
    )


def per_query(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[str, dict[str, float]]:
    """Return every metric of every judged query; 0 for a query without a ranking or hits.

    Args:
        qrels: The judgements.
        rankings: The rankings.
        limit: Length of the rankings; metrics with a larger cutoff are omitted.
    """
    measures = {}
    for name in METRICS:
        kind, _, cutoff = name.partition("@")
        if int(cutoff) <= limit:
            measures[_MEASURES[kind] @ int(cutoff)] = name
    return _values(measures, qrels, rankings)


def recall_curve(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[int, float]:
    """Return rank -> mean recall at that rank, up to ``limit``."""
    ranks = [rank for rank in CUTOFFS if rank <= limit]
    values = _values({R @ rank: rank for rank in ranks}, qrels, rankings).values()
    return {rank: fmean(each[rank] for each in values) for rank in ranks}


def _values(
    measures: Mapping[Any, K], qrels: Qrels, rankings: Rankings
) -> dict[str, dict[K, float]]:
    """Return the value of each measure by its name, for each judged query."""
    found = {query: dict.fromkeys(measures.values(), 0.0) for query in qrels}
    scored = {
        query: {document: -float(rank) for rank, document in enumerate(documents)}
        for query, documents in rankings.items()
    }
    for value in ir_measures.iter_calc(list(measures), qrels, scored):
        found[value.query_id][measures[value.measure]] = value.value
    return found
