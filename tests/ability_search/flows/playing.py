"""Models on the network beside the one that embeds, as a test plays them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tests.ability_search.flows.asking import Answer

from kadi_client import Call, Connection, RemoteError, Tool

P = TypeVar("P", bound="Played")


@dataclass
class Played:
    """A tool of a model manager, which remembers what it was asked."""

    tool: ClassVar[str]
    requests: list[dict[str, Any]] = field(default_factory=list)
    answer: Callable[[Answer], Any] = lambda answer: answer
    """Makes what is answered of the usual answer."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""

    async def handle(self, tool_input: dict[str, Any], _call: Call) -> Any:
        self.requests.append(tool_input)
        if self.gate is not None:
            await self.gate.wait()
        return self.answer(self.usual(tool_input))

    def usual(self, tool_input: dict[str, Any]) -> Answer:
        raise NotImplementedError


@dataclass
class Talker(Played):
    """A language model that says what it is told to."""

    tool = "chat-completion"
    says: str = "feline\nkitten"
    say: Callable[[dict[str, Any]], str] | None = None
    """What it says to a request, if that is not always the same."""

    def usual(self, tool_input: dict[str, Any]) -> Answer:
        says = self.says if self.say is None else self.say(tool_input)
        message = {"role": "assistant", "content": says}
        return {"choices": [{"index": 0, "message": message}]}


@dataclass
class Reader(Played):
    """A reranker that scores by a function of the text."""

    tool = "rerank"
    score: Callable[[str], float] = len

    def usual(self, tool_input: dict[str, Any]) -> Answer:
        rows = [
            {"index": index, "relevance_score": self.score(text)}
            for index, text in enumerate(tool_input["documents"])
        ]
        return {"results": rows}

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["documents"]]


@asynccontextmanager
async def playing(url: str, model: P) -> AsyncIterator[P]:
    """The model, on the network of a broker."""
    tool = Tool(model.tool, "Of models.", {"type": "object"}, model.handle)
    async with Connection(url, name="player", role="ability", tools=[tool]):
        yield model


def failing(_answer: Answer) -> Any:
    """How a model that is out of order answers."""
    raise RemoteError("out of order")
