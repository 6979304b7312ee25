"""Statements, the port that runs them, and names of types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

CLOCK = "LET clock = SELECT `date.currentTimestamp`() AS ms;"
"""Sets ``$clock[0].ms`` to the time of the database."""


class Statement(NamedTuple):
    """A script, or a single query, and its bound parameters."""

    text: str
    params: dict[str, Any]


class Scripts(Protocol):
    """Runs scripts in the database."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a read-only script, or a single query.

        Returns:
            A list of rows, or the map of a script's RETURN or of :func:`rows_together`.

        Raises:
            DatabaseUnavailable: if the database did not answer in time or refused the script.
        """

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a script that is one transaction, or a single schema command, without retries.

        Raises:
            DatabaseUnavailable: as for :meth:`read`; it is then unknown whether it took effect.
        """


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on chunks: SQL for a WHERE clause, with the parameters it binds."""

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)


def rows_together(queries: Mapping[str, str], answer: Iterable[str]) -> str:
    """Return a query whose answer is a map from the names of several queries to their rows.

    Unlike for scripts, the engine caches the plan of a query.

    Args:
        queries: Queries in order; later ones may use earlier ones as variables.
        answer: Names of the queries in the answer.
    """
    variables = ", ".join(f"${name} = ({query})" for name, query in queries.items())
    return f"SELECT {', '.join(f'${name} AS {name}' for name in answer)} LET {variables}"


def source_type(chunk_type: str) -> str:
    """Return the type of the source records of a generation."""
    return "Source" + chunk_type.removeprefix("Chunk")


def link_type(chunk_type: str) -> str:
    """Return the type of the links of a generation; it exists if there are any."""
    return "Link" + chunk_type.removeprefix("Chunk")


def kind_type(chunk_type: str) -> str:
    """Return the type of the derived kinds of a generation; it exists if there are any."""
    return "Aspect" + chunk_type.removeprefix("Chunk")
