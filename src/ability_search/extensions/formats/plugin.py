"""Plugin of the further formats of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ability_search.extension import hookimpl

if TYPE_CHECKING:
    from ability_search.index.index_ports import AddedSteps
    from ability_search.text.formats import Format


@hookimpl
def register_steps() -> AddedSteps:
    from ability_search.extensions.formats.front_matter import front_matter_warnings
    from ability_search.extensions.formats.semantic import turning_points
    from ability_search.extensions.formats.sent_documents import read_document
    from ability_search.index.index_ports import AddedSteps
    from ability_search.text.chunkers.strategies import SEMANTIC

    return AddedSteps(
        read=[read_document],
        split={SEMANTIC: turning_points},
        check_markdown=[front_matter_warnings],
    )


@hookimpl
def register_formats() -> Sequence[Format]:
    from ability_search.extensions.formats.format_table import FORMATS

    return FORMATS
