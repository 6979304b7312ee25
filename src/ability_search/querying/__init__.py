"""The query services, over the ports: plan -> candidates -> stages -> hits."""

from ability_search.querying.model import (
    Candidate,
    Degradation,
    Hit,
    Query,
    QueryAnswer,
    SimilarAnswer,
)
from ability_search.querying.service import Querying

__all__ = [
    "Candidate",
    "Degradation",
    "Hit",
    "Query",
    "QueryAnswer",
    "Querying",
    "SimilarAnswer",
]
