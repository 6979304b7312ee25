"""Call tools on the network: choose a broker, connect, call, and follow the progress of jobs."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ability_search.client.running_stack import (
    CLIENT,
    JOINED_WORKER,
    RunningStack,
    identity_file,
    read_running,
)
from ability_search.client.trust import require_trusted
from ability_search.config.schema import Broker, Settings
from ability_search.config.setting_fields import Url
from ability_search.config.sources import set_variables
from ability_search.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    SearchError,
)
from ability_search.network import client_connection
from ability_search.wire import PROGRESS, PUBLISHER
from kadi_client import Connection, Identity, KadiError, RemoteError, ToolError
from kadi_client.addresses import is_loopback, split_addresses
from kadi_client.backoff import Backoff
from kadi_client.context import calling
from kadi_client.errors import NoProvider, NotConnected, ProviderLost

log = logging.getLogger(__name__)

LONG_SECONDS = 3600.0
"""Timeout of calls that report progress, in seconds; the maximum that brokers allow."""

BATCH_DOCUMENTS = 500
BATCH_BYTES = 2 * 1024 * 1024
"""Documents and text per call: well below the message limit, far above the overhead of a call."""

_DRAIN_SECONDS = 2.0
_LIST_SECONDS = 2.0
"""Seconds that a broker may take to list its tools."""

Call = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Calls a tool; raises its failures."""
Advance = Callable[[int, int, str], None]
"""Callback with the documents done, the total number of documents, and the stage."""
AwaitedAdvance = Callable[[int, int, str], Awaitable[None]]


class NotOffered(SearchError):
    """There are workers, but none that offers the tool, which is one of an extension."""

    code = "not_offered"


@dataclass(frozen=True, slots=True)
class Target:
    """A broker and how it was chosen."""

    url: str
    networks: tuple[str, ...]
    origin: str
    """Name of the setting or stack that it comes from, for messages."""
    stack: RunningStack | None = None
    """The running stack, if this is its broker."""
    assumed: bool = False
    """Whether it is only the default address, where no broker is known to run."""

    @property
    def shown(self) -> str:
        """Return the address without credentials."""
        return str(Url(self.url))


def client_target(
    settings: Settings, environ: Mapping[str, str], broker: str | None, *, given_as: str = "url"
) -> Target:
    """Return the broker that a client may use: that of :func:`find_target`.

    Raises:
        ConfigurationError: if a file that was found names it, on another machine, and the user does
            not trust that address.
        InvalidInput: if ``broker`` is not an address.
    """
    target = find_target(settings, environ, broker, given_as=given_as)
    if broker is None and target.stack is None:
        require_trusted(settings, environ, Broker)
    return target


def find_target(
    settings: Settings, environ: Mapping[str, str], broker: str | None, *, given_as: str = "url"
) -> Target:
    """Return the broker that a component joins.

    In this order: the given one; ``BROKER_URL``; the stack running in the data directory; that of
    the configuration files.

    Raises:
        InvalidInput: if ``broker`` is not an address.
    """
    networks = settings.broker.networks
    configured = settings.broker.url.get_secret_value()
    running = read_running(settings.files.data_dir)

    def chosen(url: str, origin: str) -> Target:
        if running is None or not _places(url) & _places(running.url):
            return Target(url, networks, origin)
        return Target(url, tuple(dict.fromkeys((*networks, *running.networks))), origin, running)

    if broker is not None:
        if not broker.startswith(("ws://", "wss://")):
            raise InvalidInput(given_as, "expected an address like ws://localhost:8080/kadi")
        return chosen(broker, given_as)
    for name in ("BROKER_URL", "KADI_BROKER_URL"):
        if environ.get(name, "").strip():
            return chosen(configured, name)
    if running is not None:
        origin = f"the stack of process {running.pid}"
        return Target(running.url, running.networks, origin, running)
    if settings.broker.name != "local":
        return Target(configured, networks, f"broker {settings.broker.name} of the configuration")
    return Target(configured, networks, "the configured broker; no stack is running", assumed=True)


def _places(urls: str) -> set[tuple[str, int | None]]:
    """Return host and port of brokers; all names of the loopback interface are one host."""
    parts = [urlsplit(url) for url in split_addresses(urls)]
    hosts = [each.hostname or "" for each in parts]
    return {
        ("localhost" if is_loopback(host) else host, each.port)
        for host, each in zip(hosts, parts, strict=True)
    }


def joined_environ(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of a component, extended to join the stack that a client would use.

    It is unchanged if a client would not use a running stack.
    """
    target = find_target(settings, environ, None)
    if target.stack is None:
        return environ
    networks = ",".join(target.networks)
    broker = {"BROKER_URL": target.url, "BROKER_NETWORKS": networks}
    own = {"SEARCH_IDENTITY_FILE": str(identity_file(settings.files.data_dir, JOINED_WORKER))}
    return {**target.stack.environ, **own, **set_variables(environ), **broker}


def require_shared(target: Target, *, memory: bool = False) -> None:
    """Check that a process and the workers of a running stack answer from the same collections.

    Args:
        target: The broker of the process.
        memory: Whether the process is a worker that keeps everything in its memory.

    Raises:
        ConfigurationError: if the process or the stack keeps everything in memory.
    """
    if target.stack is None:
        return
    if memory:
        raise ConfigurationError(
            f"the stack at {target.shown} has workers, which do not share the memory of this one",
            hint="Omit --memory, or set BROKER_URL to another broker.",
        )
    if target.stack.memory:
        raise ConfigurationError(
            f"the stack at {target.shown} was started with --memory: no other process can reach its"
            " collections",
            hint="Stop it with `ability-search down` and start it with `ability-search up`.",
        )


class ToolClient:
    """A connection of an agent; opened and closed by ``async with``.

    On the broker of a running stack of this user it has the stack's identity of a client, which may
    join the network of the components; elsewhere a new one.

    Args:
        settings: Limits and tracing.
        target: The broker.
        name: Display name of the agent.
        networks: KADI networks to join. Default: those of the target.
        open_timeout: Seconds for one attempt to connect.
    """

    def __init__(
        self,
        settings: Settings,
        target: Target,
        *,
        name: str,
        networks: Sequence[str] | None = None,
        open_timeout: float = 5.0,
    ) -> None:
        self.settings = settings
        self.target = target
        self.connection = client_connection(
            settings,
            target.url,
            networks or target.networks,
            name=name,
            open_timeout=open_timeout,
            identity=client_identity(settings, target),
        )
        self.patience = 0.0
        """Seconds for which a call is repeated if components are away that answered before; for
        callers whose calls are all idempotent."""
        self._answered = False

    async def __aenter__(self) -> ToolClient:
        await self.connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def call(
        self, tool: str, tool_input: Mapping[str, Any], *, timeout: float
    ) -> dict[str, Any]:
        """Call a tool under a call id of its own and return its answer.

        Raises:
            ToolError: if the tool reports a failure.
            KadiError: if the tool does not answer, or the answer is not an object.
            NotOffered: if there are workers, but none that offers the tool.
            InvalidInput: if a text in the input is not valid Unicode.
        """
        check_unicode(tool_input)
        backoff, last = Backoff(base=0.5, cap=5.0), None
        while True:
            try:
                with calling(tool_input):
                    log.debug("calling %s", tool)
                    answer = await self.connection.invoke(tool, dict(tool_input), timeout=timeout)
            except KadiError as exc:
                if isinstance(exc, NoProvider):
                    refusal = await not_offered(self.connection, tool)
                    if refusal is not None:
                        raise refusal from exc
                self._answered = self._answered or not is_away(exc)
                now = time.monotonic()
                last = now + self.patience if last is None else last
                if now >= last or not self._answered or not is_away(exc):
                    raise
                log.info("%s is repeated: %s", tool, exc)
                await asyncio.sleep(backoff.delay(0.0))
            else:
                self._answered = True
                if not isinstance(answer, dict):
                    raise RemoteError(f"{tool} returned an answer that is not an object")
                return answer

    async def run_job(
        self,
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float,
        advance: Advance | None = None,
        before: int = 0,
    ) -> dict[str, Any]:
        """Call a tool that takes a ``jobId``, and report its progress; raises as :meth:`call`.

        ``before`` documents were done before the call and are added to its count.
        """
        request = {"jobId": secrets.token_hex(8), **tool_input}
        if advance is None:
            return await self.call(tool, request, timeout=timeout)
        async with progress_of(self.connection, request["jobId"], advance, before=before):
            return await self.call(tool, request, timeout=timeout)


async def not_offered(connection: Connection, tool: str) -> NotOffered | None:
    """Return the error for a call of a tool of an extension that no worker offers.

    It is ``None`` for another tool, and if there is no worker, which may come back.
    """
    # Few callers need the table, which imports the models of all tools.
    from ability_search.tools.table import BY_NAME, family_of, offer_remedy, tool_named

    if tool in BY_NAME or tool_named(tool) is None:
        return None
    try:
        workers = await connection.providers(PUBLISHER, timeout=_LIST_SECONDS)
    except KadiError:
        return None
    if not workers:
        return None
    return NotOffered(f"no worker offers {tool}", hint=offer_remedy(family_of(tool)))


def is_away(exc: KadiError) -> bool:
    """Return whether the broker, the worker or its database did not answer."""
    if isinstance(exc, ToolError):
        return exc.code == DatabaseUnavailable.code
    return isinstance(exc, NotConnected | NoProvider | ProviderLost)


def check_unicode(value: Any, *path: str) -> None:
    """Check that all texts and names in an input can be sent.

    Raises:
        InvalidInput: naming the field of the first one that has half a character, a lone surrogate.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise InvalidInput(
                ".".join(path),
                "has half a character (a lone surrogate), which is not valid Unicode",
                hint="Read the text with errors='replace', or remove it.",
            ) from exc
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            check_unicode(name, *path, repr(name))
            check_unicode(inner, *path, str(name))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            check_unicode(inner, *path, str(place))


def client_identity(settings: Settings, target: Target) -> Identity | None:
    """Return the identity of clients of the running stack; ``None`` for another broker."""
    if target.stack is None:
        return None
    return Identity.load_or_create(identity_file(settings.files.data_dir, CLIENT))


@asynccontextmanager
async def progress_of(
    connection: Connection, job: str, advance: Advance | AwaitedAdvance, *, before: int = 0
) -> AsyncIterator[None]:
    """Call ``advance`` for each progress event of a job, from a worker, during the block.

    ``before`` documents were done before the job and are added to its count. Events that arrived
    by the end of the block are still reported.
    """
    async with connection.subscribe(PROGRESS, from_providers_of=PUBLISHER) as events:

        async def follow() -> None:
            async for event in events:
                data = event.data if isinstance(event.data, dict) else {}
                if data.get("jobId") == job:
                    done, total = int(data.get("done", 0)), int(data.get("total", 0))
                    waiting = advance(before + done, total, str(data.get("stage", "")))
                    if waiting is not None:
                        await waiting

        task = asyncio.create_task(follow())
        try:
            yield
            # Events published before the answer have arrived before it.
            events.end()
            await asyncio.wait([task], timeout=_DRAIN_SECONDS)
        finally:
            task.cancel()
            await asyncio.wait([task])
