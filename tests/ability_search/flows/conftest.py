"""A whole network in this process: broker, engine, an embedder of words, the worker, a client."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import numpy as np
import pytest

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.read import asked_of
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.values import Read, Records
from ability_search.worker import open_worker
from kadi_client import Brokers, Call, Connection, RemoteError, Tool, ToolError
from kadi_client.tools import Handler
from kadi_localnet.broker import Limits, serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

WATCHED = (
    Records("job", where={"state": "running"}, expired=True),
    Records("retired", expired=True),
)
WATCHING = tuple(asked_of([Read(of)])[0].text for of in WATCHED)
"""What workers ask at times of their own, which is no part of any call."""
DIMENSIONS = 64
MODEL = "words-64"
PATIENCE = 60.0
"""Seconds that anything a test waits for may take at most."""
LIMITS = Limits(absence=1.0)
"""Most providers that leave a test do not return: a call of theirs need not wait long."""
_numbers = itertools.count()


def word_vector(text: str) -> np.ndarray:
    """Texts that share words point the same way; deterministic on every machine."""
    vector = np.full(DIMENSIONS, 0.01, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower()):
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        vector[digest[0] % DIMENSIONS] += 1.0
        vector[digest[1] % DIMENSIONS] += 0.5
    return vector


@dataclass
class WordModel:
    """A model manager whose only model counts words; it can be told to fail."""

    texts: list[str] = field(default_factory=list)
    requests: int = 0
    failure: Callable[[dict[str, Any]], None] | None = None
    dimensions: int = DIMENSIONS
    models: dict[str, int] = field(default_factory=dict)
    """Dimensions of further models."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    rewrite: Callable[[dict[str, Any]], Any] | None = None
    """Changes the answers."""
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    """Vectors of some texts."""
    offset: float = 0.0
    """Added to all components, so that all cosines are high."""

    async def handle(self, tool_input: dict[str, Any], _call: Call) -> Any:
        self.requests += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            self.failure(tool_input)
        self.texts += tool_input["input"]
        size = self.models.get(tool_input["model"], self.dimensions)
        data = [
            {
                "index": index,
                "embedding": base64.b64encode(
                    (self.vector(text)[:size] + self.offset).astype("<f4").tobytes()
                ).decode(),
            }
            for index, text in enumerate(tool_input["input"])
        ]
        answer = {"data": data, "model": tool_input["model"]}
        return answer if self.rewrite is None else self.rewrite(answer)

    def vector(self, text: str) -> np.ndarray:
        return self.vectors.get(text, word_vector(text))

    @property
    def tool(self) -> Tool:
        return Tool("create-embedding", "Count words.", {"type": "object"}, self.handle)


Fault = Callable[[str, Mapping[str, Any]], Any]
"""Takes a tool's name and input; what it returns, unless ``None``, is answered in its place."""


@dataclass
class Network:
    """The client, the model and every call of the worker."""

    client: Connection
    model: WordModel
    calls: list[tuple[str, Mapping[str, Any]]]
    url: str
    tools: list[Tool]
    settings: Settings
    databases: EmbeddedDatabases | None
    """``None`` if the worker keeps everything in memory."""
    store: MemoryStore | ArcadeStore
    """The store of the worker, or another over the same database."""
    parts: Connection
    """Offers ``tools``: the database ability and the model manager."""
    faults: list[Fault]
    restart_broker: Callable[[], Awaitable[None]]
    outputs: dict[str, Mapping[str, Any]]
    """Declared output schemas of the worker's tools."""
    worker: Brokers | Connection
    instead: dict[str, Handler]
    """Handlers that stand in for those of the database's and the model's tools."""

    @property
    def engine(self) -> EmbeddedDatabases:
        """The engine of a network with a database."""
        assert self.databases is not None, "this network has no database"
        return self.databases

    async def drop_database(self) -> None:
        """Take the database away under everybody."""

        def drop() -> None:
            # What the worker looks after is not to meet the engine while it drops a database.
            with self.engine._opening:
                opened = self.engine._running_engine().open.pop(self.settings.database.name)
                while any(each._running for each in tuple(self.engine._tickets)):
                    time.sleep(0.01)
                opened.java.drop()

        await asyncio.to_thread(drop)

    async def call(self, tool: str, /, **tool_input: Any) -> Any:
        """Call a tool that must succeed."""
        answer = await self.client.invoke(tool, tool_input, timeout=60)
        self.check(tool, answer)
        return answer

    def check(self, tool: str, answer: Any) -> None:
        """Hold an answer against the schema that its tool declares, if it declares one."""
        if tool in self.outputs:
            _validator(json.dumps(self.outputs[tool])).validate(answer)

    async def refused(self, tool: str, /, **tool_input: Any) -> Any:
        """Call a tool that must fail."""
        with pytest.raises(ToolError) as failure:
            await self.client.invoke(tool, tool_input, timeout=60)
        return failure.value.answer

    def hops(self) -> list[str]:
        """The tools the worker called since the last time."""
        names = [name for name, _ in self.calls]
        self.calls.clear()
        return names


@cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    """Checks answers by a schema, which is checked itself only once."""
    read = json.loads(schema)
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


Start = Callable[..., AbstractAsyncContextManager[Network]]


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the databases of one test: an engine opens all that it finds."""
    path = tmp_path_factory.mktemp("databases")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(request: pytest.FixtureRequest, data_dir: Path, tmp_path: Path) -> Start:
    """Start a network with a database of its own; settings as environment variables.

    Tests of the engine have a database of the engine, all others a store in memory.
    """
    engine = request.node.get_closest_marker("engine") is not None
    return starting(data_dir if engine else None, tmp_path)


def starting(data_dir: Path | None, home: Path) -> Start:
    """Return a function that starts networks.

    Args:
        data_dir: Directory of the engine's databases; ``None`` to keep everything in memory.
        home: Home directory of the worker.
    """
    stores: dict[str, MemoryStore] = {}
    """By the name of the database."""

    @asynccontextmanager
    async def started(
        *, database: str | None = None, meter: Meter = UNMETERED, **environ: str
    ) -> AsyncIterator[Network]:
        name = database or f"t{next(_numbers)}"
        async with AsyncExitStack() as stack:
            brokers = await stack.enter_async_context(AsyncExitStack())
            broker = await brokers.enter_async_context(serve_broker("127.0.0.1", 0, limits=LIMITS))

            async def restart_broker() -> None:
                await brokers.aclose()
                port = urlsplit(broker.url).port or 0
                await brokers.enter_async_context(serve_broker("127.0.0.1", port, limits=LIMITS))

            databases: EmbeddedDatabases | None = None
            if data_dir is not None:
                databases = await stack.enter_async_context(EmbeddedDatabases(data_dir))
            model = WordModel()
            calls: list[tuple[str, Mapping[str, Any]]] = []
            faults: list[Fault] = []
            instead: dict[str, Handler] = {}
            offered = [model.tool]
            if databases is not None:
                offered += database_tools(databases)
            tools = [_recorded(tool, calls, faults, instead) for tool in offered]
            parts = await stack.enter_async_context(
                Connection(broker.url, name="parts", role="ability", tools=tools)
            )
            settings = load_settings(
                {
                    "HOME": str(home),
                    "BROKER_URL": broker.url,
                    "BROKER_NETWORKS": "global",
                    "SEARCH_DATABASE": name,
                    "SEARCH_DATABASE_MEMORY": str(databases is None).lower(),
                    "SEARCH_EMBEDDING_MODEL": MODEL,
                    "SEARCH_EMBEDDING_ATTEMPTS": "2",
                    "SEARCH_DATABASE_PATIENCE": "0.5",
                    "SEARCH_OFFER": "all",
                    **environ,
                },
                home,
            )
            memory = MemoryStore(scan_below=settings.ranking.scan_below)
            store = None if databases else stores.setdefault(name, memory)
            worker = await stack.enter_async_context(
                open_worker(settings, base=home, meter=meter, store=store)
            )
            client = await stack.enter_async_context(Connection(broker.url, name="test"))
            outputs = {
                tool["name"]: tool["outputSchema"]
                for tool in await client.list_tools()
                if "outputSchema" in tool
            }
            yield Network(
                client,
                model,
                calls,
                broker.url,
                tools,
                settings,
                databases,
                store or store_over(client, settings),
                parts,
                faults,
                restart_broker,
                outputs,
                worker,
                instead,
            )

    return started


@pytest.fixture
async def network(start: Start) -> AsyncIterator[Network]:
    """A network with the usual settings."""
    async with start() as running:
        yield running


def store_over(client: Connection, settings: Settings) -> ArcadeStore:
    """Return a store in the database of a network, for another client of the network."""
    database = settings.database
    scripts = BrokerScripts(client.invoke, database=database.name, timeout=PATIENCE)
    return ArcadeStore(
        scripts,
        message_bytes=database.write_group_bytes,
        scan_below=settings.ranking.scan_below,
    )


def _recorded(
    tool: Tool,
    calls: list[tuple[str, Mapping[str, Any]]],
    faults: list[Fault],
    instead: Mapping[str, Handler],
) -> Tool:
    async def handle(tool_input: dict[str, Any], call: Call) -> Any:
        if tool_input.get("query", "").startswith(WATCHING):
            return await tool.handler(tool_input, call)
        calls.append((tool.name, tool_input))
        for fault in faults:
            answer = fault(tool.name, tool_input)
            if answer is not None:
                return answer
        return await instead.get(tool.name, tool.handler)(tool_input, call)

    return Tool(tool.name, tool.description, tool.input_schema, handle)


def down(_request: dict[str, Any]) -> None:
    """A failure: the model manager is out of order."""
    raise RemoteError("out of order")


def document(source: str, content: str, **further: Any) -> dict[str, Any]:
    """A document as search-index takes it."""
    return {"source": source, "title": source, "content": content, **further}
