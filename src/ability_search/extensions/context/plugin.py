"""Plugin of the text around hits, and of token budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ability_search.extension import hookimpl

if TYPE_CHECKING:
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    from ability_search.extensions.context import ContextOptions

    return (ContextOptions,)


@hookimpl
def register_stages() -> Sequence[Stage]:
    from ability_search.extensions.context.context_expansion import CONTEXT_EXPANSION, CONTEXTS
    from ability_search.extensions.context.token_budget import TOKEN_BUDGET

    return (CONTEXT_EXPANSION, CONTEXTS, TOKEN_BUDGET)
