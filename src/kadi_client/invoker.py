"""Calls of tools and their answers."""

from __future__ import annotations

from typing import Any, Protocol, Self

from kadi_client.errors import ToolError
from kadi_client.messages import Raw, decode


class Invoker(Protocol):
    """Calls tools inside ``async with``: :meth:`invoke` over the :meth:`invoke_raw` of its kind."""

    async def open(self) -> None:
        """Connect; ``async with`` does so on entering."""

    async def close(self) -> None:
        """Close in order; ``async with`` does so on leaving."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def invoke(
        self,
        tool: str,
        tool_input: Any,
        *,
        timeout: float = 30.0,
        target_agent: str | None = None,
        check: bool = True,
    ) -> Any:
        """Call a tool and return its answer as plain Python values.

        Example:
            found = await broker.invoke("search-query", {"collection": "notes", "query": "backup"})
            print(found["count"])

        Cancelling gives up the call and cancels it at the provider.

        Args:
            tool: Name of the tool.
            tool_input: Input of the tool, a JSON object.
            timeout: Seconds for the whole call, including the wait for a lost session.
            target_agent: Id of the agent that must serve the call; any provider if not given.
            check: Raise :class:`ToolError` for an answer with ``success: false``; otherwise
                return it like any other answer.

        Raises:
            ToolError: if the tool answered that it failed.
            CallTimeout: if no answer came in time.
            RemoteError: if the provider or the broker answered with an error.
            NotConnected: if the session was lost during the call, or the connection is closed.
                Whether the tool ran is not known then.
            FrameTooLarge: if the input is too large to send.
            TypeError, ValueError: if the input is not JSON, or holds half a surrogate pair.
            ProtocolError: if the result cannot be decoded.
        """
        answer = decode(
            await self.invoke_raw(tool, tool_input, timeout=timeout, target_agent=target_agent)
        )
        if check and isinstance(answer, dict) and answer.get("success") is False:
            raise ToolError(tool, answer)
        return answer

    async def invoke_raw(
        self, tool: str, tool_input: Any, *, timeout: float = 30.0, target_agent: str | None = None
    ) -> Raw:
        """Call a tool as :meth:`invoke` does, and return its answer as JSON, whatever it says."""

    async def providers(self, tool: str, *, timeout: float = 30.0) -> frozenset[str]:
        """Return the ids of the agents that offer a tool; empty if the broker lists none.

        Raises as :meth:`invoke` does.
        """
