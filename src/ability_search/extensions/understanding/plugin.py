"""Plugin of the understanding of queries and dates."""

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
    from ability_search.extensions.understanding import UnderstandingOptions

    return (UnderstandingOptions,)


@hookimpl
def register_stages() -> Sequence[Stage]:
    from ability_search.extensions.understanding.intent_scores import (
        EXCLUSION_PENALTY,
        TIME_CLOSENESS,
        TIME_ORDER,
    )
    from ability_search.extensions.understanding.query_expansion import (
        QUERY_EXPANSION,
        VAGUE_EXPANSION,
    )
    from ability_search.extensions.understanding.query_understanding import QUERY_UNDERSTANDING

    return (
        QUERY_UNDERSTANDING,
        QUERY_EXPANSION,
        VAGUE_EXPANSION,
        TIME_CLOSENESS,
        TIME_ORDER,
        EXCLUSION_PENALTY,
    )


@hookimpl
def register_steps() -> AddedSteps:
    from ability_search.extensions.understanding.written_dates import dated
    from ability_search.index.index_ports import AddedSteps

    return AddedSteps(label=[dated])
