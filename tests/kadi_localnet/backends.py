"""The tools of the database ability over a backend, as a caller on the wire sees them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.kadi_client.calls import PlainCall

from kadi_client.messages import decode, encode
from kadi_localnet.database.backend import Backend
from kadi_localnet.database.tools import database_tools

MakeBackend = Callable[..., Any]
"""Returns a context with a backend."""

names = (f"contract{number}" for number in itertools.count())


class QuietCall(PlainCall):
    """A call whose handler must not publish."""

    async def publish(self, channel: str, data: Any) -> None:
        raise AssertionError("a database publishes nothing")


class Abilities:
    """The tools as a caller on the wire sees them."""

    def __init__(self, backend: Backend, database: str, **options: Any) -> None:
        self._tools = {tool.name: tool for tool in database_tools(backend, **options)}
        self.backend = backend
        self.database = database
        self.counts = backend.counts

    async def call(self, name: str, given: dict[str, Any], remaining: float | None = 20.0) -> Any:
        return decode(encode(await self._tools[name].handler(given, QuietCall(remaining))))

    async def query(self, text: str, params: Any = None, language: str = "sql") -> Any:
        given = {"database": self.database, "query": text, "language": language}
        return await self.call("arcade-query", given | {"params": params})

    async def command(self, text: str, params: Any = None, language: str = "sql") -> Any:
        given = {"database": self.database, "command": text, "language": language}
        return await self.call("arcade-command", given | {"params": params})

    async def rows(self, text: str, params: Any = None, language: str = "sql") -> Any:
        answer = await self.query(text, params, language)
        assert answer["success"], answer
        assert answer["count"] == len(answer["result"])
        return answer["result"]

    async def run(self, text: str, params: Any = None, language: str = "sql") -> Any:
        answer = await self.command(text, params, language)
        assert answer["success"], answer
        assert answer["count"] == len(answer["result"])
        return answer["result"]
