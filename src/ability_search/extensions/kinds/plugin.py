"""Plugin of the kinds that are derived from documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ability_search.extension import hookimpl

if TYPE_CHECKING:
    from ability_search.index.index_ports import AddedSteps
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    from ability_search.extensions.kinds import KindOptions

    return (KindOptions,)


@hookimpl
def register_stages() -> Sequence[Stage]:
    from ability_search.extensions.kinds.kind_search import KIND_SEARCH

    return (KIND_SEARCH,)


@hookimpl
def register_steps() -> AddedSteps:
    from ability_search.extensions.kinds.derived_kinds import KindDerivation
    from ability_search.index.index_ports import AddedSteps

    return AddedSteps(derive=[KindDerivation])
