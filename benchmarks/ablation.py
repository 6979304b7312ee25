"""Take single signals out of the ranking, and measure what each is worth on judged sets.

All sets below a directory are indexed in this process, see :mod:`.offline`, and searched in hybrid
mode: with all signals, and without each of those named (all by default). The table has the change
of nDCG@10 without the signal, with paired 95 % bootstrap intervals, on each set and on the mean of
the sets; an asterisk marks an interval without 0. Directories with the same parent below that
directory, such as conversations, count as one set.

With ``--constants`` other values of the constants are measured in the same way, one at a time. Two
tables follow: the change by each value; and what the choice of a value is worth on a set that it
was not chosen on, for each set the value with the highest mean on all others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from ability_search.config.schema import Settings
from ability_search.evaluation.comparison import Values, paired
from ability_search.evaluation.judged_sets import Dataset, JudgedQuery, read_dataset
from ability_search.filters.operands import instants
from ability_search.ports import Embedder
from ability_search.search import fusion, planner
from ability_search.search.fusion import Trust, trust, unseen_score
from ability_search.search.stages import exclusion_penalty, feedback, time_closeness
from ability_search.search.stages.feedback import feedback_weights
from ability_search.text import bm25
from ability_search.text.analyzer import Analyzer
from ability_search.understanding import intent
from ability_search.understanding.exclusions import Exclusions
from benchmarks.offline import Ask, asking, indexed, measured_offline, offline_embedder
from benchmarks.quality import AS_OF, METRIC, group_of, mean_interval, sets_below

Change = tuple[ModuleType | type, str, Any]
"""Module or class, name, and what stands in for it while the signal is out."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A part of the ranking, and how it is taken out."""

    about: str
    ranking: Mapping[str, float] = field(default_factory=dict)
    """Settings of the ranking."""
    context: int | None = None
    """Value of ``chunk_context``, for which the sets are indexed again."""
    changes: Sequence[Change] = ()
    understanding: bool = False
    """Whether it concerns only queries of which something was understood."""


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_options: value


def _usual(name: str, value: float) -> Change:
    """Return the change that replaces a part of the trust by its mean over the open sets."""

    def constant(*scores: Any) -> Trust | None:
        found = trust(*scores)
        return None if found is None else found._replace(**{name: value})

    return fusion, "trust", constant


SIGNALS: Mapping[str, Signal] = {
    "times": Signal(
        "times read in queries",
        changes=[(intent, "find_timeframe", _constant(None))],
        understanding=True,
    ),
    "dated": Signal(
        "chunks of the requested period join the candidates",
        changes=[(planner, "dated_filter", _constant(None))],
        understanding=True,
    ),
    "near-dates": Signal(
        "dates next to the requested period count",
        changes=[(time_closeness, "OUTSIDE", 0.0)],
        understanding=True,
    ),
    "order": Signal(
        "newest and oldest", changes=[(intent, "find_order", _constant(None))], understanding=True
    ),
    "exclusions": Signal(
        "exclusions read in queries",
        changes=[(intent, "find_exclusions", Exclusions)],
        understanding=True,
    ),
    "excluded": Signal(
        "demotion of what is excluded",
        changes=[(exclusion_penalty, "SHARE", 0.0)],
        understanding=True,
    ),
    "title": Signal("terms in titles", ranking={"title_weight": 0.0}),
    "title-weight": Signal("terms in titles count more", ranking={"title_weight": 1.0}),
    "context": Signal("the context of a chunk", context=0),
    "context-terms": Signal("terms of the context", changes=[(bm25, "CONTEXT_WEIGHT", 0.0)]),
    "stop-words": Signal(
        "function words are left out of queries",
        changes=[(Analyzer, "query_terms", Analyzer.terms)],
    ),
    "single-words": Signal(
        "each term saturates by itself", changes=[(planner, "_named", _constant({}))]
    ),
    "unseen": Signal(
        "half a score for what the keyword retriever did not return",
        changes=[(fusion, "unseen_score", _constant(0.0))],
    ),
    "trust": Signal("weights by the trust in each retriever", ranking={"fusion_peak": 0.0}),
    "semantic-gap": Signal("the gap of the cosines", changes=[_usual("semantic_gap", 0.18)]),
    "keyword-gap": Signal("the gap of the keyword scores", changes=[_usual("keyword_gap", 0.36)]),
    "agreement": Signal("the agreement of the retrievers", changes=[_usual("agreement", 0.48)]),
    "feedback": Signal("feedback", ranking={"feedback": 0.0}),
    "phrases": Signal("phrase match", ranking={"phrasing": 0.0}),
}

_ALL = Signal("all signals")


def _set(name: str, *values: float) -> Mapping[str, Signal]:
    return {f"{value:g}": Signal(name, ranking={name: value}) for value in values}


def _of(
    where: ModuleType, name: str, *values: float, understanding: bool = False
) -> Mapping[str, Signal]:
    return {
        f"{value:g}": Signal(name, changes=[(where, name, value)], understanding=understanding)
        for value in values
    }


def _unseen(share: float) -> Signal:
    def score(*arguments: Any) -> float:
        return 2 * share * unseen_score(*arguments)

    return Signal("share of the last score", changes=[(fusion, "unseen_score", score)])


def _tau(value: float) -> Signal:
    weights = partial(feedback_weights, tau=value)
    return Signal("weights of the feedback", changes=[(feedback, "feedback_weights", weights)])


_WEIGHTS = (0.4, 0.6)
CONSTANTS: Mapping[str, Mapping[str, Signal]] = {
    "fusion_semantic": {
        f"{value:g}": Signal(
            "usual weight", ranking={"fusion_semantic": value, "fusion_keyword": 1 - value}
        )
        for value in _WEIGHTS
    },
    "fusion_peak": _set("fusion_peak", 0.3, 0.9),
    "agreement": _of(fusion, "_AGREEMENT", 0.3, 0.9),
    "usual evidence": _of(fusion, "_USUAL_EVIDENCE", 0.22, 0.42),
    "reach": _of(fusion, "_REACH", 0.2, 0.4),
    "scores of a gap": _of(fusion, "_FIRST", 5, 20),
    "unseen": {f"{share:g}": _unseen(share) for share in (0, 1)},
    "terms by themselves": _of(planner, "_WORDS", 4, 16),
    "candidates": _set("candidates", 20, 80),
    "title_weight": _set("title_weight", 1, 2, 3),
    "context weight": _of(bm25, "CONTEXT_WEIGHT", 0.2, 0.45),
    "chunk_context": {f"{n}": Signal("turns", context=n) for n in (1, 3)},
    "feedback": _set("feedback", 0.25, 1),
    "feedback hits": _of(feedback, "LEARNED", 1, 5),
    "feedback tau": {f"{value:g}": _tau(value) for value in (0.05, 0.2)},
    "feedback depth": _of(feedback, "DEPTH", 10, 40),
    "phrasing": _set("phrasing", 0.2, 0.8),
    "weight of times": _of(fusion, "SIGNAL_TERMS", 1 / 3, 1, understanding=True),
    "next to the period": _of(time_closeness, "OUTSIDE", 0.25, 0.75, understanding=True),
}
"""Other values of the constants, by their names."""
_VALUES: Mapping[str, Signal] = {
    f"{name}={value}": signal
    for name, values in CONSTANTS.items()
    for value, signal in values.items()
}


async def values_of(
    directory: Path, names: Sequence[str], settings: Settings, embedder: Embedder
) -> dict[str, Values]:
    """Return the metric of each query of a set with all signals (``""``), and without each.

    Args:
        directory: The set.
        names: Names of signals, or of values of constants (``feedback=1``).
        settings: Settings of the worker.
        embedder: Embeds texts and queries.
    """
    dataset = read_dataset(directory)
    queries = {"": dataset.queries, "understood": tuple(filter(_is_understood, dataset.queries))}
    stores = {settings.chunking.context: await indexed(dataset, settings, embedder)}
    found: dict[str, Values] = {}
    for name in ("", *names):
        signal = {**SIGNALS, **_VALUES}.get(name, _ALL)
        ranking = settings.ranking.model_copy(update=dict(signal.ranking))
        changed = replace(settings, ranking=ranking)
        context = settings.chunking.context if signal.context is None else signal.context
        if context not in stores:
            chunking = settings.chunking.model_copy(update={"context": context})
            without = replace(settings, chunking=chunking)
            stores[context] = await indexed(dataset, without, embedder)
        asked = queries["understood" if signal.understanding else ""]
        with ExitStack() as stack:
            for where, attribute, value in signal.changes:
                stack.enter_context(patch.object(where, attribute, value))
            values = await metric_of(asked, dataset, asking(stores[context], changed, embedder))
        every = [values.get(query.id) for query in dataset.queries]
        known = found.get("", np.zeros(len(every)))
        found[name] = np.array(
            [own if value is None else value for own, value in zip(known, every, strict=True)]
        )
    return found


async def metric_of(queries: Sequence[JudgedQuery], dataset: Dataset, ask: Ask) -> dict[str, float]:
    """Return the metric of some queries of a set by their ids."""
    if not queries:
        return {}
    qrels = {query.id: dataset.qrels[query.id] for query in queries}
    part = replace(dataset, queries=tuple(queries), negatives=(), qrels=qrels)
    run = await measured_offline(part, ask)
    return {id: each.metrics[METRIC] for id, each in run.queries.items()}


def _is_understood(query: JudgedQuery) -> bool:
    found = intent.understand(query.text, now=instants("", query.as_of or AS_OF)[1])
    return bool(found.recognized or found.order)


async def measure_all(
    sets: Path, names: Sequence[str], cache: Path, environ: Mapping[str, str]
) -> dict[str, dict[str, Values]]:
    """Return the values of :func:`values_of` for each set, those of one parent together."""
    found: dict[str, dict[str, Values]] = {}
    async with offline_embedder(cache, environ) as (settings, embedder):
        for directory in sets_below(sets, None):
            name = group_of(directory, sets)
            own = await values_of(directory, names, settings, embedder)
            known = found.setdefault(name, {})
            for signal, values in own.items():
                known[signal] = np.concatenate([known.get(signal, np.zeros(0)), values])
            print(f"{directory}: {own[''].mean():.4f}", file=sys.stderr, flush=True)
    return found


def table(found: Mapping[str, Mapping[str, Values]], names: Sequence[str]) -> list[list[str]]:
    """Return the rows of the result: a header, the means with all signals, a row per signal."""
    means = [f"{values[''].mean():.3f}" for values in found.values()]
    rows = [
        ["taken out", *found, "mean"],
        ["(nothing)", *means, f"{np.mean([v[''].mean() for v in found.values()]):.3f}"],
    ]
    for name in names:
        cells = []
        for values in found.values():
            each = paired(values[""], values[name])
            cells.append(_cell(each.difference, each.low, each.high))
        changes = [values[name] - values[""] for values in found.values()]
        rows.append([name, *cells, _cell(*mean_interval(changes))])
    return rows


def left_out(found: Mapping[str, Mapping[str, Values]]) -> list[list[str]]:
    """Return a row per constant: the value chosen without each set, and its change there."""
    rows = [["constant", *found, "mean of the sets left out"]]
    for constant, values in CONSTANTS.items():
        names = ["", *(f"{constant}={value}" for value in values)]
        chosen, changes = [], []
        for left in found:
            others = [found[name] for name in found if name != left]
            means = {name: float(np.mean([o[name].mean() for o in others])) for name in names}
            best = max(names, key=means.__getitem__)
            chosen.append(best.partition("=")[2] or "default")
            changes.append(found[left][best] - found[left][""])
        cells = zip(chosen, changes, strict=True)
        each = [f"{value} {change.mean():+.4f}" for value, change in cells]
        rows.append([constant, *each, _cell(*mean_interval(changes))])
    return rows


def _cell(difference: float, low: float, high: float) -> str:
    if low == high == 0:
        return "0"
    certain = "*" if low > 0 or high < 0 else ""
    return f"{difference:+.4f}{certain} ({low:+.4f} to {high:+.4f})"


def main() -> None:
    """Measure and print a table."""
    about = "\n".join(f"  {name:18} {each.about}" for name, each in SIGNALS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"signals:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", type=Path, help="directory with judged sets, at any depth")
    parser.add_argument(
        "--without", nargs="+", choices=SIGNALS, metavar="SIGNAL", default=list(SIGNALS)
    )
    parser.add_argument(
        "--constants", action="store_true", help="measure other values of the constants instead"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/vectors"), help="directory of kept vectors"
    )
    parser.add_argument("--json", type=Path, help="file for the metric of each query")
    arguments = parser.parse_args()
    if not sets_below(arguments.sets, 1):
        parser.error(f"sets: {arguments.sets} has no corpus.jsonl, at any depth")
    names = list(_VALUES) if arguments.constants else arguments.without
    found = asyncio.run(measure_all(arguments.sets, names, arguments.cache, os.environ))
    for row in [*table(found, names), *(left_out(found) if arguments.constants else [])]:
        print(f"| {' | '.join(row)} |")
    if arguments.json is not None:
        values = {
            name: {signal: each.tolist() for signal, each in own.items()}
            for name, own in found.items()
        }
        arguments.json.write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main()
