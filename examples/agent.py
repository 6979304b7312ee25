"""An agent that remembers notes and finds them again.

    python agent.py

It serves two tools, `remember` and `recall`, which call those of the search ability, and prints the
events of all indexing on the network. The broker is BROKER_URL, or the one of `ability-search up`.
Ctrl-C ends it: calls that are running get ten seconds to finish.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from kadi_client import DEFAULT_URL, Call, Connection, Identity, Tool, ToolError

COLLECTION = "agent-notes"
SECONDS = 30.0


class Note(BaseModel):
    """Input of `remember`."""

    name: str = Field(description="Name of the note; a note of the same name is replaced.")
    text: str = Field(min_length=1)


class Question(BaseModel):
    """Input of `recall`."""

    question: str = Field(min_length=1)


def tools(broker: Connection) -> list[Tool]:
    async def remember(note: Note, call: Call) -> dict[str, Any]:
        document = {"source": note.name, "title": note.name, "content": note.text}
        report = await broker.invoke(
            "search-index",
            {"collection": COLLECTION, "documents": [document]},
            timeout=call.remaining or SECONDS,
        )
        return {"changed": report["unchanged"] == 0}

    async def recall(question: Question, call: Call) -> dict[str, Any]:
        try:
            found = await broker.invoke(
                "search-query",
                {"collection": COLLECTION, "query": question.question, "limit": 3},
                timeout=call.remaining or SECONDS,
            )
        except ToolError as error:
            if error.code != "not_found":
                raise
            return {"notes": []}  # nothing has been remembered yet
        hits = found["results"]
        return {"notes": [{"name": hit["source"], "text": hit["content"]} for hit in hits]}

    return [
        Tool.typed("remember", "Remember a note.", Note, remember),
        Tool.typed("recall", "Find the notes that answer a question.", Question, recall),
    ]


async def main() -> None:
    url = os.environ.get("BROKER_URL", DEFAULT_URL)
    identity = Identity.load_or_create(Path("agent.pem"))
    async with Connection(url, name="note-keeper", identity=identity) as broker:
        await broker.serve(tools(broker))
        async with broker.subscribe("search.index.#") as events:
            print(f"ready as {broker.agent_id}", flush=True)
            async for event in events:
                print(event.channel, event.data, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
