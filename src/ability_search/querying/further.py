"""Optional steps of a query, in the order they run."""

from __future__ import annotations

from ability_search.querying.decay import USE
from ability_search.querying.diversity import DIVERSITY
from ability_search.querying.extending import EXTENDED
from ability_search.querying.persource import PER_SOURCE
from ability_search.querying.steps import Look, Reordering
from ability_search.querying.surroundings import EXPAND
from ability_search.querying.walking import GRAPH

LOOKS: tuple[Look, ...] = (EXTENDED, GRAPH, USE)
"""In the order they run; steps that read data of all candidates come last."""

REORDERINGS: tuple[Reordering, ...] = (PER_SOURCE, EXPAND, DIVERSITY)
"""In the order they run, after ``minScore`` and the reranker."""
