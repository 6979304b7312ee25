"""The two MCP prompts: answer a question, explore a collection."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmbeddedResource,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
    TextResourceContents,
)

from ability_search.extensions.mcp.resources import Resources, collection_uri

Context = ServerRequestContext[Any, Any]

_COLLECTION = "Name of the collection."
_ANSWER = Prompt(
    name="answer-from-collection",
    title="Answer from the index",
    description="Answer a question from indexed texts only, with a source for each statement.",
    arguments=[
        PromptArgument(name="question", description="The question.", required=True),
        PromptArgument(name="collection", description=f"{_COLLECTION} Default: all."),
    ],
)
_EXPLORE = Prompt(
    name="explore-collection",
    title="Explore a collection",
    description="Find out what a collection contains and which questions it can answer.",
    arguments=[PromptArgument(name="collection", description=_COLLECTION, required=True)],
)
_ANSWER_TEXT = """\
Answer this question only from texts indexed in ability-search:

{question}

1. Call search-query with collection "{collection}", the question in your own words, expand \
"section" and maxResultTokens 4000. If the question contains names, identifiers or error messages, \
call it once more with mode "keyword".
2. If the hits do not answer the question, search again with other words, at most twice.
3. Answer briefly. After each statement cite its source and line from the hit, such as \
[guide/install.md:12].
4. If hits contradict each other, say so and cite both. If the hits contain no answer, say so, and \
say what you searched for."""
_EXPLORE_TEXT = """\
Explore this collection, which is described above. Look at its sources, then call search-query on \
it three to five times with queries that its sources suggest, and search-similar on a typical hit. \
Report in at most fifteen lines: what it is about, what kinds of texts it contains, how recent it \
is, five questions that it answers well, and what seems to be missing."""


class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def listing(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """List the prompts."""
        return ListPromptsResult(prompts=[_ANSWER, _EXPLORE])

    async def get(self, _ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Return a prompt with its arguments filled in.

        Raises:
            MCPError: if the prompt or collection does not exist, or an argument is missing.
        """
        given = params.arguments or {}
        for prompt in (_ANSWER, _EXPLORE):
            if prompt.name == params.name:
                _require(prompt, given)
                messages = (
                    _answer(given)
                    if prompt is _ANSWER
                    else await self._explore(given["collection"])
                )
                return GetPromptResult(description=prompt.description, messages=messages)
        raise MCPError(INVALID_PARAMS, f"unknown prompt {params.name!r}")

    async def _explore(self, collection: str) -> list[PromptMessage]:
        described = TextResourceContents(
            uri=collection_uri(collection),
            mime_type="application/json",
            text=await self._resources.described(collection),
        )
        return [
            PromptMessage(role="user", content=EmbeddedResource(resource=described)),
            PromptMessage(role="user", content=TextContent(text=_EXPLORE_TEXT)),
        ]


def _answer(given: dict[str, str]) -> list[PromptMessage]:
    text = _ANSWER_TEXT.format(
        question=given["question"], collection=given.get("collection") or "*"
    )
    return [PromptMessage(role="user", content=TextContent(text=text))]


def _require(prompt: Prompt, given: dict[str, str]) -> None:
    for argument in prompt.arguments or ():
        if argument.required and not given.get(argument.name, "").strip():
            raise MCPError(
                INVALID_PARAMS, f"{prompt.name}: the argument {argument.name} is missing"
            )
