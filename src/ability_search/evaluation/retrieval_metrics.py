"""Retrieval metrics, computed by ir-measures, which calls the code of trec_eval.

The gain of nDCG is the grade, discounted by log2(rank + 1); all other metrics count a document as
relevant from grade 1. Only the order of a ranking is passed on, so that equal scores do not
change it.

Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, 2002 (nDCG); Voorhees,
*The TREC-8 Question Answering Track Report*, 1999 (MRR).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import ir_measures
from ir_measures import RR, R, Success, nDCG

from ability_search.evaluation.judged_sets import Qrels
from ability_search.evaluation.runs import METRICS

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Ranks of the recall curve."""

_MEASURES = {"nDCG": nDCG, "Recall": R, "MRR": RR, "Hit": Success}

Rankings = Mapping[str, Sequence[str]]
"""Query -> its documents, best first, without duplicates."""


def per_query(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[str, dict[str, float]]:
    """Return every metric of every judged query; 0 for a query without a ranking or hits.

    Args:
        qrels: The judgements.
        rankings: The rankings.
        limit: Length of the rankings; metrics with a larger cutoff are omitted.
    """
    measures = {_measure(name): name for name in METRICS if _cutoff(name) <= limit}
    found: dict[str, dict[str, float]] = {
        query: dict.fromkeys(measures.values(), 0.0) for query in qrels
    }
    for value in ir_measures.iter_calc(list(measures), qrels, _scored(rankings)):
        found[value.query_id][measures[value.measure]] = value.value
    return found


def recall_curve(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[int, float]:
    """Return rank -> mean recall at that rank, up to ``limit``."""
    ranks = [cutoff for cutoff in CUTOFFS if cutoff <= limit]
    values: dict[int, list[float]] = {rank: [] for rank in ranks}
    measures = {R @ rank: rank for rank in ranks}
    for value in ir_measures.iter_calc(list(measures), qrels, _scored(rankings)):
        values[measures[value.measure]].append(value.value)
    return {rank: fmean(found) for rank, found in values.items()}


def _measure(name: str) -> ir_measures.measures.Measure:
    kind, _, cutoff = name.partition("@")
    return _MEASURES[kind] @ int(cutoff)


def _cutoff(name: str) -> int:
    return int(name.partition("@")[2])


def _scored(rankings: Rankings) -> dict[str, dict[str, float]]:
    return {
        query: {document: -float(rank) for rank, document in enumerate(documents)}
        for query, documents in rankings.items()
    }
