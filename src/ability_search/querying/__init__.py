"""The query services, over the ports: plan -> candidates -> stages -> hits."""

from ability_search.querying.model import (
    Budget,
    Candidate,
    Degradation,
    Hit,
    Query,
    QueryAnswer,
    SimilarAnswer,
    Understood,
)
from ability_search.querying.service import Querying

__all__ = [
    "Budget",
    "Candidate",
    "Degradation",
    "Hit",
    "Query",
    "QueryAnswer",
    "Querying",
    "SimilarAnswer",
    "Understood",
]
