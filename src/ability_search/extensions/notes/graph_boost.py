"""The option ``boost``: central or novel chunks score higher. Pure.

The values are those that the last analysis of the collection stored with its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ability_search.extensions.notes import GraphOptions
from ability_search.search.candidates import Candidate, Candidates, scale
from ability_search.search.stage import scorer
from ability_search.search.wants import Wants


def score_boost(
    weights: Mapping[str, float], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Multiply scores by ``(1 + sum(w v)) / (1 + sum(w))``, which lies in [0, 1].

    A chunk without a value has the mean of the others. If no candidate has a value, nothing is
    changed, and a warning says so.

    Args:
        weights: Weight of each value, > 0.
        items: The candidates to score.
        candidates: All candidates of the collection; the mean is that of the first block.
    """
    means: dict[str, float] = {}
    for name in weights:
        stored = [item.columns.get(name) for item in candidates.blocks[0]]
        known = [value for value in stored if value is not None]
        if known:
            means[name] = sum(known) / len(known)
    if items and len(means) < len(weights):
        name = candidates.collection.public_name
        warning = f"boost: {name} was not analysed; call notes-analyze"
        if warning not in candidates.warnings:
            candidates.warnings.append(warning)
        return
    for item in items:
        own = {name: item.columns.get(name) for name in weights}
        values = {name: means[name] if at is None else at for name, at in own.items()}
        gained = sum(weight * values[name] for name, weight in weights.items())
        scale(item, NAME, (1 + gained) / (1 + sum(weights.values())), **values)


def _weights(asked: GraphOptions) -> Mapping[str, float] | None:
    option = asked.boost
    given = {} if option is None else option.model_dump()
    return {name: weight for name, weight in given.items() if weight} or None


NAME = "boost"
GRAPH_BOOST = scorer(
    NAME,
    80,
    score_boost,
    option=_weights,
    wants=lambda weights, _: Wants(fields=tuple(weights)),
)
