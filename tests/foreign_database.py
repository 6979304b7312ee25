"""A stand-in for a database ability that is not ours, as the field's ``ability-arcadedb`` behaves.

* It has no stored identity, so it has another agent id at every start.
* Its errors are returned, never raised: ``{success: false, error}``. The text is that of its HTTP
  client (``fetch failed``), or ``HTTP 500: `` and the body of the server's response.
* It offers no ``arcade-index-search``, its commands take no ``numbers``, it limits no statement,
  and it passes on what the server answers: a script's map is ``[{"value": {...}}]``.

It runs over an ArcadeDB server of any version. No code of the field's ability is here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.database_servers import PASSWORD

from kadi_client import Call, Connection, Tool
from kadi_client.tools import Handler

NAME = "ability-arcadedb"
_FIELDS = {"type": "object"}


@asynccontextmanager
async def foreign_database(
    broker: str, server: str, *, networks: Sequence[str] = ("global",), drops: bool = True
) -> AsyncIterator[Connection]:
    """Offer the databases of a server on a broker, under a new agent id.

    Args:
        broker: Address of the broker.
        server: Base URL of the server.
        networks: Networks to join.
        drops: Whether it offers ``arcade-db-drop``.
    """
    async with httpx.AsyncClient(
        base_url=server, auth=("root", PASSWORD), timeout=60, trust_env=False
    ) as client:
        tools = _Tools(client).offered()
        if not drops:
            tools = [tool for tool in tools if tool.name != "arcade-db-drop"]
        async with Connection(
            broker, name=NAME, role="agent", networks=networks, tools=tools, grace=0.0
        ) as connection:
            yield connection


class _Tools:
    """The handlers of the tools."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    def offered(self) -> list[Tool]:
        handlers: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "arcade-query": self.query,
            "arcade-command": self.command,
            "arcade-batch": self.batch,
            "arcade-db-list": self.names,
            "arcade-db-create": self.create,
            "arcade-db-drop": self.drop,
        }
        return [Tool(name, name, _FIELDS, _answering(run)) for name, run in handlers.items()]

    async def query(self, given: dict[str, Any]) -> Any:
        return await self._statement("query", given, given["query"])

    async def command(self, given: dict[str, Any]) -> Any:
        return await self._statement("command", given, given["command"])

    async def batch(self, given: dict[str, Any]) -> Any:
        try:
            return await self._transaction(given)
        except httpx.HTTPError:
            return {"success": False, "error": "fetch failed", "committed": False}

    async def _transaction(self, given: dict[str, Any]) -> Any:
        database = given["database"]
        begun = await self._client.post(f"/api/v1/begin/{database}")
        if begun.is_error:
            raise _Failure(f"Failed to begin transaction: {begun.text}")
        session = {"arcadedb-session-id": begun.headers["arcadedb-session-id"]}
        results: list[Any] = []
        for item in given["commands"]:
            command = {"command": item} if isinstance(item, str) else item
            body = {"language": "sql", **command}
            response = await self._client.post(
                f"/api/v1/command/{database}", json=body, headers=session
            )
            if response.is_error:
                await self._client.post(f"/api/v1/rollback/{database}", headers=session)
                error = f"Command failed: {command['command']} -- {response.text}"
                return {"success": False, "error": error, "committed": False}
            results += response.json().get("result", [])
        # As in the field, the answer to the commit is not looked at.
        await self._client.post(f"/api/v1/commit/{database}", headers=session)
        return {"success": True, "results": results, "committed": True}

    async def names(self, _given: dict[str, Any]) -> Any:
        response = await self._client.get("/api/v1/databases")
        if response.is_error:
            raise _Failure(f"Failed to list databases: {response.status_code}")
        return {"success": True, "databases": response.json()["result"]}

    async def create(self, given: dict[str, Any]) -> Any:
        if given["name"] in (await self.names({}))["databases"]:
            raise _Failure(f"Database '{given['name']}' already exists")
        await self._post("/api/v1/server", {"command": f"create database {given['name']}"})
        return {"success": True, "database": given["name"]}

    async def drop(self, given: dict[str, Any]) -> Any:
        if given.get("confirm") is not True:
            raise _Failure("Refused: confirm must be true to drop a database")
        database = given.get("database")
        await self._post("/api/v1/server", {"command": f"drop database {database}"})
        return {"success": True}

    async def _statement(self, path: str, given: dict[str, Any], text: str) -> Any:
        body = {"language": given.get("language", "sql"), "command": text}
        if given.get("params"):
            body["params"] = given["params"]
        answer = await self._post(f"/api/v1/{path}/{given['database']}", body)
        result = answer.get("result", [])
        return {"success": True, "result": result, "count": len(result)}

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = await self._client.post(path, json=body)
        if response.is_error:
            raise _Failure(f"HTTP {response.status_code}: {response.text}")
        return response.json()


class _Failure(Exception):
    """A failure that is returned."""


def _answering(run: Callable[[dict[str, Any]], Awaitable[Any]]) -> Handler:
    async def handle(given: dict[str, Any], _call: Call) -> Any:
        try:
            return await run(given)
        except _Failure as exc:
            return {"success": False, "error": str(exc)}
        except httpx.HTTPError:
            return {"success": False, "error": "fetch failed"}

    return handle
