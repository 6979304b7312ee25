"""An agent that answers questions from a collection.

    python agent_loop.py notes "what did we decide about the pump?"

It searches, asks for less than the hits hold if they do not fit, waits where the ability says so,
and hands the passages to the network's chat-completion tool; without one it prints them.
"""

import asyncio
import sys

from ability_search.client import Hits, SearchClient, ToolError
from kadi_client import RemoteError

PROMPT = (
    "Answer from these passages, and name their sources in brackets.\n\n{passages}\n\n{question}"
)


async def passages(search: SearchClient, collection: str, question: str) -> Hits:
    while True:
        try:
            return await search.query(
                collection, question, limit=8, expand="neighbors", max_result_tokens=3000
            )
        except ToolError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(error.retry_after or 1.0)


async def main(collection: str, question: str) -> None:
    async with SearchClient() as search:
        hits = await passages(search, collection, question)
        texts = [
            f"[{hit.source}] {hit.context.content if hit.context else hit.content}"
            for hit in hits.results
        ]
        message = PROMPT.format(passages="\n\n".join(texts), question=question)
        try:
            answer = await search.call(
                "chat-completion", {"messages": [{"role": "user", "content": message}]}
            )
        except RemoteError:
            print("\n\n".join(texts))
        else:
            print(answer["choices"][0]["message"]["content"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
