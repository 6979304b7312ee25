"""The description of a tool, from which it is published: on the network, over HTTP, over MCP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema


class _Untitled(GenerateJsonSchema):
    """JSON Schema in which fields have no titles, which would only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """Description of a tool.

    The eight are implemented in :mod:`ability_search.tools.handlers`, others by their extension.
    """

    name: str
    title: str
    """Display title."""
    summary: str
    """Short description."""
    usage: str
    """When to use it, and when to use another tool; for models that choose by description."""
    params: type[BaseModel]
    result: type[BaseModel]
    read_only: bool = False
    """Whether a call changes nothing."""
    destructive: bool = False
    """Whether a call can delete or replace data."""
    idempotent: bool = True
    """Whether repeating a call with the same input has no further effect."""
    lean: tuple[str, ...] | None = None
    """Parameters that models see with a schema of their own where descriptions are to be short; the
    others are members of ``options``. By default all of them."""
    work: Callable[[Any], int] | None = None
    """Estimated work of a call for its input, in candidates of a query; by default that of the
    eight tools."""

    @property
    def description(self) -> str:
        """Summary and usage."""
        return f"{self.summary} {self.usage}"

    @property
    def reports_progress(self) -> bool:
        """Return whether a call is a job and publishes events."""
        return "job_id" in self.params.model_fields

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the input."""
        return self.params.model_json_schema(by_alias=True, schema_generator=_Untitled)

    @property
    def output_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the result of a successful call."""
        return self.result.model_json_schema(
            by_alias=True, mode="serialization", schema_generator=_Untitled
        )
