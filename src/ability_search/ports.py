"""Ports of the network and its models; the store has its own, :mod:`.store.port`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from ability_search.documents import Vector
from kadi_client.tools import Agent


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        """Embed ``texts`` with ``model``; fail after ``timeout`` seconds without an answer.

        Returns:
            float32 of shape (len(texts), d), in the order of the texts; every vector has unit
            length. Without texts the shape is (0, 0).

        Raises:
            EmbeddingUnavailable: if no usable answer came in time.
            TextsRefused: if some texts are refused; it has the vectors of the others.
        """


class Chat(Protocol):
    """A language model."""

    async def complete(
        self, system: str, user: str, *, model: str | None, timeout: float, enough: int
    ) -> str:
        """Answer ``user`` as ``system`` instructs, within ``timeout`` seconds.

        Args:
            system: The instruction.
            user: The text to process.
            model: Name of the model; ``None`` for the default.
            timeout: In seconds.
            enough: Characters of the answer that are used; the model may be stopped after them.

        Returns:
            The model's answer, unchecked; not blank.

        Raises:
            ChatUnavailable: if no usable answer came in time.
        """


class RerankerPort(Protocol):
    """A model that reads a query and a text together."""

    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, timeout: float
    ) -> list[float]:
        """Score each text for a query, within ``timeout`` seconds.

        Args:
            model: Name of the reranker; ``None`` for the default.
            query: The query.
            texts: Whole texts, not their beginnings.
            timeout: In seconds.

        Returns:
            A score in [0, 1] for each text, in their order; higher is better. Empty without texts.

        Raises:
            RerankerUnavailable: if no usable answer came in time, or one that gives different texts
                the same score.
        """


class Invoke(Protocol):
    """A function that calls tools on the network, such as :meth:`kadi_client.Connection.invoke`."""

    async def __call__(
        self,
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = ...,
        target_agent: str | None = ...,
    ) -> Any:
        """Call ``tool``, of this agent if one is named; return its answer.

        Raises:
            ToolError: if the tool returned a failure.
            KadiError: if there is no answer.
        """


Agents = Callable[[str], Awaitable[Sequence[Agent]]]
"""Returns the agents that offer a tool; empty if there are none.

Raises :class:`~kadi_client.errors.KadiError` if the broker does not list its tools.
"""
