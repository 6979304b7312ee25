"""The base of all models on the wire, and the channels of events."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

PROGRESS = "search.index.progress"
COMPLETED = "search.index.completed"
FAILED = "search.index.failed"
"""Channels of the events about jobs."""
PUBLISHER = "search-index"
"""A tool of the agents whose events about jobs are believed."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


NonBlank = Annotated[
    str,
    AfterValidator(_not_blank),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": r"\S"}),
]
Count = Annotated[int, Field(strict=True)]
Share = Annotated[float, Field(ge=0, le=1)]
Model = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=256,
        description="Embedding model. Default: the collection's model; for a new collection the"
        " configured default.",
        examples=["all-MiniLM-L6-v2"],
    ),
]


class Input(BaseModel):
    """Base class of inputs: camelCase names; unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class Result(BaseModel):
    """Base class of results: camelCase names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    @classmethod
    def made(cls, **values: Any) -> Self:
        """Return a result of values for all fields, which must be of their types: no checks."""
        result = cls.__new__(cls)
        object.__setattr__(result, "__dict__", values)
        object.__setattr__(result, "__pydantic_fields_set__", set(values))
        object.__setattr__(result, "__pydantic_extra__", None)
        object.__setattr__(result, "__pydantic_private__", None)
        return result
