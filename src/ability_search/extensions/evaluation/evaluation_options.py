"""The options of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ability_search.client.tool_client import LONG_SECONDS
from ability_search.extensions.cli.parameters import TimeoutOption, given, json_object
from ability_search.filters.operands import instants
from ability_search.tools.inputs import QueryInput
from kadi_client.tools import validation_text

_OURS = ("collection", "query", "mode", "limit", "offset", "asOf")
"""Query fields that `eval` sets itself."""


class Mode(StrEnum):
    """The values of `--mode`."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


def _checked_moment(text: str | None) -> str | None:
    """Check a date or an instant now rather than after indexing."""
    if text is not None:
        instants("--as-of", text)
    return text


def _checked_fields(text: str) -> str:
    """Check the additional query fields now rather than after indexing."""
    fields = json_object(text, "--options")
    if ours := sorted(fields.keys() & set(_OURS)):
        raise typer.BadParameter(f"{', '.join(ours)}: set by `eval` itself", param_hint="--options")
    try:
        QueryInput.model_validate({"collection": "any", "query": "any", **fields})
    except ValidationError as exc:
        raise typer.BadParameter(validation_text(exc, QueryInput), param_hint="--options") from exc
    return text


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """Options of an evaluation, as of the command."""

    mode: Annotated[list[Mode] | None, "Search mode, repeatable.  [default: all three]"] = None
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Documents ranked per query.")] = 100
    options: Annotated[
        str,
        typer.Option(
            metavar="JSON", callback=_checked_fields, help="Additional fields of search-query."
        ),
    ] = "{}"
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            callback=_checked_moment,
            help="Reference date of queries without one.  [default: now]",
        ),
    ] = None
    name: Annotated[str | None, "Name of the run.  [default: the directory's name]"] = None
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Collection to index into.  [default: named by its hash]"
        ),
    ] = None
    fresh: Annotated[bool, "Delete the collection and index the corpus again."] = False
    concurrency: Annotated[int, typer.Option(min=1, max=16, help="Concurrent queries.")] = 2
    timeout: TimeoutOption = LONG_SECONDS

    def query_fields(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of every query; its model is that of indexing with ``recipe``."""
        common = given(model=recipe.get("model"), asOf=self.as_of)
        return common | json_object(self.options, "--options")
