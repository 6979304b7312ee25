"""How well ``relevance`` tells questions that a collection answers from those that it does not.

Of each judged set below a directory up to 100 questions are asked, and as many of the other sets.
The first table is about floors of ``relevance`` itself: the share of other questions that are below
it, and of questions with a right document among the first three. The second is about ``ask``: the
share of questions whose judged source is among the passages, of these the share that is refused,
and the share of other questions that is not, by the floor that is best on the other sets.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from ability_search.evaluation.judged_sets import Dataset, JudgedQuery, read_dataset
from benchmarks.offline import Ask, asking, indexed, offline_embedder
from benchmarks.quality import group_of, sets_below

FLOORS = (0.05, 0.1, 0.12, 0.15, 0.2)
QUESTIONS = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to a question.

    Attributes:
        relevance: Relevance of the answer.
        first: Whether one of the first three hits is right; false for questions of other sets.
        passage: Whether a right document is among the passages of ``ask``; likewise.
        own: Whether the question is of the set itself.
    """

    relevance: float
    first: bool
    passage: bool
    own: bool


def sample(queries: Sequence[JudgedQuery], count: int) -> list[JudgedQuery]:
    """Return at most ``count`` queries, at even distances."""
    places = np.linspace(0, len(queries) - 1, min(count, len(queries))).astype(int)
    return [queries[place] for place in places.tolist()]


async def answers(
    dataset: Dataset, others: Sequence[JudgedQuery], ask: Ask, *, own: int, tokens: int
) -> list[Asked]:
    """Return the answers of a set to ``own`` of its questions, and to others."""
    found = []
    for query in (*sample(dataset.queries, own), *others):
        fields = {"query": query.text, "maxResultTokens": tokens}
        result = await ask(fields if query.as_of is None else {**fields, "asOf": query.as_of})
        grades = {} if query in others else dataset.qrels[query.id]
        right = [grades.get(hit.source, 0) > 0 for hit in result.results]
        assert result.relevance is not None
        found.append(Asked(result.relevance, any(right[:3]), any(right), query not in others))
    return found


def share(values: Sequence[bool]) -> float:
    """Return the share of true values; 0 without any."""
    return float(np.mean(values)) if values else 0.0


def mistakes(asked: Sequence[Asked], floor: float) -> float:
    """Return the shares of wrong refusals and of wrong answers together."""
    refused = share([each.relevance < floor for each in asked if each.passage])
    answered = share([each.relevance >= floor for each in asked if not each.own])
    return refused + answered


def print_tables(found: Mapping[str, Sequence[Asked]]) -> None:
    """Print the tables of all sets."""
    print(f"| floor of relevance | {' | '.join(found)} |")
    for floor in FLOORS:
        below = [share([x.relevance < floor for x in own if not x.own]) for own in found.values()]
        first = [share([x.relevance < floor for x in own if x.first]) for own in found.values()]
        print(f"| {floor}, of other sets | {' | '.join(f'{value:.2f}' for value in below)} |")
        print(f"| {floor}, answered | {' | '.join(f'{value:.3f}' for value in first)} |")
    print("\n| set | floor | source among the passages | refused although | others not refused |")
    for name, own in found.items():
        rest = [asked for other, asked in found.items() if other != name]
        floor = min(FLOORS, key=lambda each: sum(mistakes(asked, each) for asked in rest))
        mine = [each.passage for each in own if each.own]
        refused = [each.relevance < floor for each in own if each.passage]
        answered = [each.relevance >= floor for each in own if not each.own]
        cells = f"{floor} | {share(mine):.2f} | {share(refused):.2f} | {share(answered):.2f}"
        print(f"| {name} | {cells} |")
    print("\n| floor | refused although | others not refused |")
    every = list(chain.from_iterable(found.values()))
    for floor in FLOORS:
        refused = [each.relevance < floor for each in every if each.passage]
        answered = [each.relevance >= floor for each in every if not each.own]
        cells = f"{sum(refused)} of {len(refused)} | {sum(answered)} of {len(answered)}"
        print(f"| {floor} | {cells} |")


async def measured(sets: Path, cache: Path, environ: Mapping[str, str]) -> dict[str, list[Asked]]:
    """Return the answers of each set, those of one parent together."""
    directories = sets_below(sets, None)
    names = [group_of(directory, sets) for directory in directories]
    datasets = [read_dataset(directory) for directory in directories]
    queries: defaultdict[str, list[JudgedQuery]] = defaultdict(list)
    for name, dataset in zip(names, datasets, strict=True):
        queries[name] += dataset.queries
    found: dict[str, list[Asked]] = {}
    async with offline_embedder(cache, environ) as (settings, embedder):
        for name, dataset in zip(names, datasets, strict=True):
            count = QUESTIONS // names.count(name)
            pool = [
                query
                for other in queries
                if other != name
                for query in sample(queries[other], count)
            ]
            ask = asking(await indexed(dataset, settings, embedder), settings, embedder)
            tokens = settings.answers.passage_tokens
            found.setdefault(name, []).extend(
                await answers(dataset, sample(pool, count), ask, own=count, tokens=tokens)
            )
    return found


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", type=Path, help="directory with judged sets, at any depth")
    parser.add_argument(
        "--cache", type=Path, default=Path("build/vectors"), help="directory of kept vectors"
    )
    arguments = parser.parse_args()
    print_tables(asyncio.run(measured(arguments.sets, arguments.cache, os.environ)))


if __name__ == "__main__":
    main()
