"""What a ranking is worth, by ir-measures, which calls trec_eval's own code.

Gain of nDCG is the grade itself, discounted by log2(rank + 1); everything else counts a document
as relevant from grade 1 on. Equal scores cannot blur a ranking: its order alone is handed over.

Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, 2002 (nDCG); Voorhees,
*The TREC-8 Question Answering Track Report*, 1999 (MRR).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import ir_measures
from ir_measures import RR, R, Success, nDCG

from ability_search.evaluation.dataset import Qrels
from ability_search.evaluation.runs import METRICS

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Ranks at which recall is drawn."""

_MEASURES = {"nDCG": nDCG, "Recall": R, "MRR": RR, "Hit": Success}

Rankings = Mapping[str, Sequence[str]]
"""Documents of each query, best first, each once."""


def per_query(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[str, dict[str, float]]:
    """Every metric of every judged query; a query that is not ranked, or found nothing, has 0.

    Args:
        qrels: The judgements.
        rankings: What was found.
        limit: Ranks that were asked for; metrics that look further are left out.
    """
    measures = {_measure(name): name for name in METRICS if _cutoff(name) <= limit}
    found: dict[str, dict[str, float]] = {
        query: dict.fromkeys(measures.values(), 0.0) for query in qrels
    }
    for value in ir_measures.iter_calc(list(measures), qrels, _scored(rankings)):
        found[value.query_id][measures[value.measure]] = value.value
    return found


def recall_curve(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[int, float]:
    """Mean recall within the first ranks, up to ``limit``."""
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
