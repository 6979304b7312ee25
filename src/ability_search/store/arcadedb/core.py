"""Statements, the port that runs them, names of types, and what ends a transaction on chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol


class Statement(NamedTuple):
    """A script, or a single query, and its bound parameters."""

    text: str
    params: Mapping[str, Any] = {}


class Scripts(Protocol):
    """Runs scripts in the database.

    Each method raises DatabaseUnavailable if the database did not answer in time or refused; it is
    then unknown whether a write took effect.
    """

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a read-only script, or a single query.

        Returns:
            A list of rows, or the map of a script's RETURN or of :func:`rows_together`.
        """

    async def search(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Search indexes without SQL; ``None`` if the database does not offer that."""

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        """Run a script that is one transaction, or a single schema command, without retries."""


class Parameters(dict[str, Any]):
    """The parameters of a statement; the names of those that are bound begin with a prefix."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def bind(self, value: Any) -> str:
        """Return the SQL of a value."""
        name = f"{self._prefix}p{len(self)}"
        self[name] = value
        return f":{name}"


RUN = "databaseRun"
"""Variable of a database, in its engine's memory only: a word of its own for each opening.

So a database without it, or with another one than before, was restarted. The embedded engine of
``kadi_localnet`` sets it; in others the first worker that misses it does.
"""

SELECT_RUN = Statement(f"SELECT ${RUN} AS run")
"""Asks for nothing but the word of :data:`RUN`."""


def rows_together(queries: Mapping[str, str], answer: Iterable[str]) -> str:
    """Return a query whose answer is a map from the names of several queries to their rows.

    Unlike for scripts, the engine caches the plan of a query. The answer also has ``run``, see
    :data:`RUN`, which :class:`.BrokerScripts` reads and takes out.

    Args:
        queries: Queries in order; later ones may use earlier ones as variables.
        answer: Names of the queries in the answer.
    """
    variables = ", ".join(f"${name} = ({query})" for name, query in queries.items())
    shown = ", ".join(f"${name} AS {name}" for name in answer)
    return f"SELECT {shown}, ${RUN} AS run LET {variables}"


def source_type(chunk_type: str) -> str:
    """Return the type of the source records of a generation."""
    return "Source" + chunk_type.removeprefix("Chunk")


def link_type(chunk_type: str) -> str:
    """Return the type of the links of a generation; it exists if there are any."""
    return "Link" + chunk_type.removeprefix("Chunk")


def kind_type(chunk_type: str) -> str:
    """Return the type of the derived kinds of a generation; it exists if there are any."""
    return "Aspect" + chunk_type.removeprefix("Chunk")


# The engine makes the records of a transaction visible first and adds them to the vector and sparse
# indexes afterwards, one posting after the other; the commit returns when all are added. In
# between, some milliseconds for a small group, a search finds neither what was replaced nor its
# replacement. So such a transaction leaves a note that is deleted after it, and a search that sees
# a note is repeated. An old note is one that a crash has left behind.

PATIENCE = 30_000
"""Milliseconds after which a note is old."""

COMMIT = f"""
        INSERT INTO Unindexed SET type = :type, token = :commit, at = `date.currentTimestamp`();
        COMMIT;
        BEGIN;
        DELETE FROM Unindexed
            WHERE token = :commit OR at < `date.currentTimestamp`() - {PATIENCE};
        COMMIT RETRY 10;
"""
"""Ends a transaction on chunks of ``:type``, with what :func:`commit_params` binds."""

NOTES = (
    "SELECT at FROM Unindexed"
    f" WHERE type = :type AND at >= `date.currentTimestamp`() - {PATIENCE} LIMIT 1"
)
"""A row if what is searched next of ``:type`` may be incomplete."""


def commit_params(*written: object) -> dict[str, Any]:
    """Return the parameters of :data:`COMMIT` except ``:type``; ``written`` names the commit."""
    return {"commit": blake2b(repr(written).encode(), digest_size=16).hexdigest()}
