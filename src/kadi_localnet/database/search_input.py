"""The input of a search of indexes, and columns of numbers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Base64Bytes, BaseModel, Field, model_validator

_FLOAT = np.dtype("<f4")
_MOST = 1_000_000
"""Records of the longest list."""

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Numbers(BaseModel):
    """A column of rows: an array of numbers in each row that has one."""

    type: Literal["float", "integer"]
    block: Base64Bytes = Field(description="All arrays, as float32 or int32, in base64.")
    lengths: list[Annotated[int, Field(ge=0)] | None] = Field(
        description="Of the array of each row; null for none."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.block) != _FLOAT.itemsize * sum(filter(None, self.lengths)):
            raise ValueError("a block needs four bytes for each number")
        if self.type == "float" and not np.isfinite(np.frombuffer(self.block, _FLOAT)).all():
            raise ValueError("a block needs finite numbers")
        return self


class Compared(BaseModel):
    """A vector or weighted terms, with which records are compared."""

    properties: list[Text] = Field(
        min_length=1, max_length=2, description="Of the index: of vectors, or of ids and weights."
    )
    vector: Base64Bytes | None = Field(None, description="A block of float32 in base64.")
    ids: list[Annotated[int, Field(ge=0, lt=2**31)]] = []
    weights: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = []

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.vector is None:
            if len(self.properties) != 2 or len(self.ids) != len(self.weights):
                raise ValueError("terms need two properties, and a weight for each id")
        elif len(self.properties) != 1 or not self.vector or len(self.vector) % _FLOAT.itemsize:
            raise ValueError("a vector needs one property, and four bytes for each number")
        elif not np.isfinite(self.numbers).all():
            raise ValueError("a vector needs finite numbers")
        return self

    @property
    def numbers(self) -> npt.NDArray[np.float32]:
        """The vector, shape (d,)."""
        return np.frombuffer(self.vector or b"", _FLOAT)


class OneIndex(BaseModel):
    """A search of the index of a type."""

    type: Text
    by: Text = Field(description="Name of the vector or the terms.")
    limits: list[Annotated[int, Field(ge=1, le=_MOST)]] = Field(
        min_length=1, description="Number of records of each list."
    )
    beam: int = Field(0, ge=0, le=_MOST, description="Minimum beam width in a graph.")
    where: Text | None = Field(None, description="SQL condition on the records to search.")


class Lookup(BaseModel):
    """Records of a type by values of properties."""

    type: Text
    where: dict[Text, Any] = Field(min_length=1)
    columns: list[Text] = []
    unless: dict[Text, Any] = Field(
        {}, description="Values of a single record of which nothing need be answered."
    )


class IndexSearch(BaseModel):
    """Searches of indexes whose records are wanted together."""

    database: Name
    compared: dict[Text, Compared] = Field(
        description="By name; each record that any search finds gets a score by each."
    )
    searches: dict[Text, OneIndex]
    params: dict[str, Any] = Field({}, description="Named parameters of the conditions.")
    columns: list[Text] = Field([], description="Columns of all records.")
    ahead: list[Text] = Field([], description="Further columns of the first by each order.")
    first: int = Field(0, ge=0, le=_MOST, description="Number of these.")
    orders: list[dict[Text, tuple[float, float | None]]] = Field(
        [],
        description="By name [weight, half] of a score x, which adds weight x, or"
        " weight x / (x + half). Equal records are in the order of their columns.",
    )
    before: list[Lookup] = Field([], description="Records to read before the searches.")
    after: list[Lookup] = Field([], description="Records to read after them.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        named = {each.by for each in self.searches.values()}.union(*self.orders)
        if unknown := named - self.compared.keys():
            raise ValueError(f"{', '.join(sorted(unknown))} is not in compared")
        return self
