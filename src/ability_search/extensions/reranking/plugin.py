"""Plugin of reranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ability_search.extension import hookimpl

if TYPE_CHECKING:
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    from ability_search.extensions.reranking import RerankingOptions

    return (RerankingOptions,)


@hookimpl
def register_stages() -> Sequence[Stage]:
    from ability_search.extensions.reranking.cross_encoder import CROSS_ENCODER
    from ability_search.extensions.reranking.diversity import DIVERSITY
    from ability_search.extensions.reranking.field_rules import FIELD_RULES, FULL_TEXT_SCORES
    from ability_search.extensions.reranking.pseudo_relevance import PSEUDO_RELEVANCE

    return (PSEUDO_RELEVANCE, FULL_TEXT_SCORES, FIELD_RULES, CROSS_ENCODER, DIVERSITY)
