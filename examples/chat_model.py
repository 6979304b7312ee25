"""An agent that offers a language model to all agents: the tool `chat-completion`.

    MODEL_URL=http://localhost:11434 MODEL=llama3.2 python chat_model.py

MODEL_URL is a server with OpenAI's chat completions, such as Ollama, llama.cpp or vLLM, and
MODEL_KEY its key, if it needs one. The broker is BROKER_URL, or the one of `ability-search up`.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from kadi_client import DEFAULT_URL, Call, Connection, Identity, Tool

SECONDS = 120.0


class Message(BaseModel):
    """A message of the conversation."""

    role: str
    content: str


class Conversation(BaseModel):
    """Input of `chat-completion`."""

    messages: list[Message]
    model: str | None = None
    max_tokens: int = 256
    temperature: float = 0


def chat_completion(server: httpx.AsyncClient, model: str) -> Tool:
    async def complete(asked: Conversation, call: Call) -> dict[str, Any]:
        request = {**asked.model_dump(), "model": asked.model or model}
        answer = await server.post(
            "/v1/chat/completions", json=request, timeout=call.remaining or SECONDS
        )
        if answer.is_error:
            return {"success": False, "error": answer.text[:300], "code": "internal"}
        completion: dict[str, Any] = answer.json()
        return completion

    return Tool.typed("chat-completion", "Continue a conversation.", Conversation, complete)


async def main() -> None:
    key = os.environ.get("MODEL_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx.AsyncClient(base_url=os.environ["MODEL_URL"], headers=headers) as server,
        Connection(
            os.environ.get("BROKER_URL", DEFAULT_URL),
            name="chat-model",
            identity=Identity.load_or_create(Path("chat-model.pem")),
            tools=[chat_completion(server, os.environ["MODEL"])],
        ) as broker,
    ):
        print(f"ready as {broker.agent_id}", flush=True)
        await broker.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
