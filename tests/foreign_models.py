"""A model manager as others on the network run it: a stand-in for those that nobody here wrote.

It differs from ours as those do:

- it has no stored identity, so its agent id is a new one at every start, while its display name
  stays the same;
- errors are returned in OpenAI's shape, ``{"error": {"message": ...}}``, never raised;
- vectors are lists of numbers, whatever ``encoding_format`` asks for, and fields that it does not
  know are ignored;
- with a ``key`` it refuses requests that do not have it.

A test starts it as often as it likes, and reads in ``received`` what came in::

    models = ForeignModels(networks=["models"], key="sk-1")
    async with models.running(broker.url):
        ...
    async with models.running(broker.url):  # under another agent id
        ...
    assert models.keys == {"sk-1"}
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from kadi_client import Call, Connection, Identity, Tool

DIMENSIONS = 64
ANY = {"type": "object"}


@dataclass
class ForeignModels:
    """The model manager; see the module."""

    name: str = "model-manager"
    """Display name."""
    networks: Sequence[str] = ("global",)
    key: str | None = None
    """API key that requests must have."""
    failure: str = ""
    """Message of the error that every request is answered with, if any."""
    identity: Identity | None = None
    """A stored identity, under which it has the same agent id at every start."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    tools: Sequence[str] = ("create-embedding", "rerank", "chat-completion")
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Name of the tool and input of each request, whichever agent id it came to."""
    arrivals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Name of the tool of each request, to wait for one."""
    ids: list[str] = field(default_factory=list)
    """The agent ids of all starts, the latest one last."""

    @property
    def keys(self) -> set[str | None]:
        """The API keys that came in; ``None`` for a request without one."""
        return {tool_input.get("api_key") for _, tool_input in self.received}

    @asynccontextmanager
    async def running(self, url: str) -> AsyncIterator[Connection]:
        """Run it under a new agent id; at the end it leaves at once, whatever it works on."""
        offered = [Tool(name, "Of models.", ANY, self._handler(name)) for name in self.tools]
        connection = Connection(
            url,
            name=self.name,
            networks=list(self.networks),
            tools=offered,
            identity=self.identity,
            grace=0.0,
        )
        async with connection:
            self.ids.append(connection.agent_id)
            yield connection

    def _handler(self, tool: str) -> Any:
        async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
            self.received.append((tool, tool_input))
            self.arrivals.put_nowait(tool)
            if self.gate is not None:
                await self.gate.wait()
            return self.answer(tool, tool_input)

        return handle

    def answer(self, tool: str, tool_input: dict[str, Any]) -> Any:
        """Return the answer of a tool in the shape of its API."""
        if self.failure:
            return _error(self.failure, "server_error")
        if self.key is not None and tool_input.get("api_key") != self.key:
            return _error("Incorrect API key provided.", "invalid_request_error")
        if tool == "create-embedding":
            rows = [
                {"object": "embedding", "index": index, "embedding": vector_of(text)}
                for index, text in enumerate(tool_input["input"])
            ]
            return {"object": "list", "data": rows, "model": tool_input["model"], "usage": {}}
        if tool == "rerank":
            scores = [len(words_of(text)) / 1000 for text in tool_input["documents"]]
            rows = [{"index": n, "relevance_score": score} for n, score in enumerate(scores)]
            return {"results": sorted(rows, key=lambda row: -row["relevance_score"])}
        message = {"role": "assistant", "content": "a word"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def vector_of(text: str) -> list[float]:
    """Return a vector that counts the words of a text; texts that share words are similar."""
    vector = [0.01] * DIMENSIONS
    for word in words_of(text):
        vector[blake2b(word.encode(), digest_size=1).digest()[0] % DIMENSIONS] += 1.0
    return vector


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind}}
