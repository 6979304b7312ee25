"""Calls of tools over the network: a result, or a failure with its code and its hint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ability_search.client.tool_client import not_offered
from ability_search.config.schema import Settings
from ability_search.errors import DeadlineExceeded, InvalidInput, SearchError, TooLarge
from ability_search.providers.provider_errors import no_answer, texts_in, words_of
from ability_search.tools.boundary import failure
from ability_search.tools.table import TOOLS, offered_tools, tool_named
from kadi_client import (
    CallTimeout,
    Connection,
    FrameTooLarge,
    KadiError,
    NoProvider,
    NotConnected,
    ProviderLost,
    Raw,
    RemoteError,
    ToolError,
)
from kadi_client.context import calling
from kadi_client.messages import decode
from kadi_client.provider import CANCELLED, FAILED, OK, noted

log = logging.getLogger(__name__)

_START_WORKER = (
    "Start a worker with `ability-search worker` on a network of this client, or join its network;"
    " `ability-search doctor` shows what is connected."
)
_OTHER_AGENT = "Check which agent offers this tool: it does not answer as a worker."

Observe = Callable[[str, str, float], None]
"""Callback after each call: the tool, its error code or ``ok``, and the duration in seconds."""


class Unavailable(SearchError):
    """No broker or no worker answers."""

    code = "unavailable"
    retryable = True
    default_hint = "Run `ability-search doctor` to see what is connected, then call again."


def quoted(text: str) -> str:
    """Return the words of another program on one line, without credentials and paths."""
    return words_of(text, {})


def broker_unavailable(
    cause: KadiError | None, problem: str = "the broker does not answer"
) -> Unavailable:
    """Return the error for a broker that does not do its part, with its words if there are any."""
    words = quoted(str(cause)) if cause else ""
    return Unavailable(f"{problem}: {words}" if words else problem, retry_after=1.0)


@dataclass(slots=True)
class LiveConnection:
    """A replaceable connection to the network."""

    patience: float
    """Seconds to wait until it is connected."""
    _there: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: Connection | None = None

    def use(self, connection: Connection | None) -> None:
        """Replace the connection; ``None`` makes calls wait for the next one."""
        self._connection = connection
        if connection is None:
            self._there.clear()
        else:
            self._there.set()

    async def connection(self) -> Connection:
        """Wait until there is a connection with a session, and return it.

        Raises:
            Unavailable: if there is none in time.
        """
        try:
            async with asyncio.timeout(self.patience):
                while True:
                    await self._there.wait()
                    connection = self._connection
                    if connection is None:
                        continue
                    try:
                        await connection.wait_connected()
                    except NotConnected:
                        if connection is self._connection:
                            raise
                    else:
                        return connection
        except (TimeoutError, NotConnected) as exc:
            raise self._unreachable(exc) from exc

    def _unreachable(self, exc: Exception) -> Unavailable:
        """Return the error for a wait for a connection that has ended without one."""
        cause = self._connection.last_failure if self._connection else None
        if cause is None and isinstance(exc, KadiError):
            cause = exc
        return broker_unavailable(cause, "the broker cannot be reached")


def report_of(exc: Exception, tool: str) -> Mapping[str, Any]:
    """Return the report of any exception; an unexpected one is logged under an incident id."""
    return exc.answer if isinstance(exc, ToolError) else failure(exc, tool)


class _Head(msgspec.Struct):
    """The field that distinguishes a failure from a result; the rest is passed on undecoded."""

    success: bool = True


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls tools."""

    live: LiveConnection
    timeout: float
    """Timeout of a call, in seconds."""
    observe: Observe | None = None

    async def call(self, tool: str, tool_input: Any) -> Raw:
        """Call a tool and return its result as undecoded JSON; cancelling cancels the call.

        Raises:
            ToolError: if the tool reports a failure.
            SearchError: if the tool does not answer.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        code = CANCELLED
        with calling(tool_input):
            try:
                answer = await self._call(tool, tool_input)
                code = OK
                return answer
            except Exception as exc:
                code = SearchError.code
                if isinstance(exc, SearchError | ToolError):
                    code = exc.code or FAILED
                raise
            finally:
                seconds = clock() - began
                noted(tool, code, seconds, level=logging.INFO)
                if self.observe is not None:
                    self.observe(tool, code, seconds)

    async def _call(self, tool: str, tool_input: Any) -> Raw:
        connection = await self.live.connection()
        try:
            answer = await self._answer(connection, tool, tool_input)
            head = msgspec.json.decode(answer, type=_Head)
            report = None if head.success else decode(answer)
        except NoProvider as exc:
            refusal = await not_offered(connection, tool)
            raise refusal or _translated(exc, tool, tool_input) from exc
        except KadiError as exc:
            raise _translated(exc, tool, tool_input) from exc
        except msgspec.MsgspecError as exc:
            raise Unavailable(
                f"{tool} returned an answer that is not an object", hint=_OTHER_AGENT
            ) from exc
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            raise InvalidInput("input", "a value cannot be sent, such as a huge number") from exc
        if report is not None:
            raise ToolError(tool, report)
        return answer

    async def _answer(self, connection: Connection, tool: str, tool_input: Any) -> Raw:
        """Call a tool; repeat a read once, in the time left, if its worker is lost meanwhile."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout
        try:
            return await connection.invoke_raw(tool, tool_input, timeout=self.timeout)
        except ProviderLost:
            left, row = deadline - clock(), tool_named(tool)
            if row is None or not row.read_only or left <= 0:
                raise
        return await connection.invoke_raw(tool, tool_input, timeout=left)

    async def read(self, tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool as :meth:`call` does and decode the result."""
        answer: dict[str, Any] = decode(await self.call(tool, tool_input))
        return answer


def _translated(exc: KadiError, tool: str, tool_input: Any) -> SearchError:
    """Return the error for the caller, with the words of the broker or of the agent."""
    if isinstance(exc, FrameTooLarge):
        return TooLarge(
            f"the input is too large to send: {exc}",
            hint="Send less at a time, or increase max_message_bytes on all sides.",
        )
    if isinstance(exc, CallTimeout):
        return DeadlineExceeded(str(exc))
    if isinstance(exc, RemoteError) and str(exc).startswith("toolInput:"):
        log.info("%s cannot read its input: %s", tool, exc)
        return InvalidInput(
            "input",
            "holds a value that cannot be represented, such as 1e999",
            hint="Send numbers within the range of 64-bit floats.",
        )
    log.warning("%s did not answer: %s", tool, exc)
    sent = {"input": list(texts_in(tool_input))}
    problem = no_answer(tool, exc, sent, who="the worker", caller="this client")
    hint = _START_WORKER if isinstance(exc, NoProvider) else None
    return Unavailable(problem, hint=hint, retry_after=1.0)


NEEDED_TOOLS: Mapping[str, tuple[str, ...]] = {
    "database": ("arcade-query", "arcade-command", "arcade-db-list", "arcade-db-create"),
    "models": ("create-embedding",),
    "worker": tuple(row.name for row in TOOLS),
}
"""The tools that each component provides to the others, whatever the settings say."""


def needed_tools(
    settings: Settings, *, memory: bool = False, offer: Sequence[str] | None = None
) -> Mapping[str, tuple[str, ...]]:
    """Return the tools that must be on the network, by component.

    Args:
        settings: The settings.
        memory: Whether the worker keeps everything in memory, and so needs no database.
        offer: Families of tools that the worker offers; by default those of the settings.

    Raises:
        ConfigurationError: if the families are none of extensions.
    """
    offered = offered_tools(settings.loading.offer if offer is None else offer)
    needed = {**NEEDED_TOOLS, "worker": tuple(row.name for row in offered)}
    memory, api = memory or settings.database.memory, settings.embedding.transport == "api"
    unneeded = {"database": memory, "models": api}
    return {name: tools for name, tools in needed.items() if not unneeded.get(name)}
