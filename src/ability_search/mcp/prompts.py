"""Prompts: two ways to begin."""

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

from ability_search.mcp.resources import Resources, collection_uri

Context = ServerRequestContext[Any, Any]

_COLLECTION = "Name of the collection."
_ANSWER = Prompt(
    name="answer-from-collection",
    title="Answer from what is indexed",
    description="Answer a question from indexed texts only, each statement with its source.",
    arguments=[
        PromptArgument(name="question", description="What you want to know.", required=True),
        PromptArgument(name="collection", description=f"{_COLLECTION} Left out: all of them."),
    ],
)
_EXPLORE = Prompt(
    name="explore-collection",
    title="Get to know a collection",
    description="Find out what a collection holds and what it can answer.",
    arguments=[PromptArgument(name="collection", description=_COLLECTION, required=True)],
)
_ANSWER_TEXT = """\
Answer this question from what is indexed in ability-search, and from nothing else:

{question}

1. Call search-query with collection "{collection}", the question in your own words, expand \
"section" and maxResultTokens 4000. If names, identifiers or error messages occur in it, call it \
once more with mode "keyword".
2. If the hits do not answer it, search again with other words, twice at most.
3. Answer briefly. After each statement name its source and line as the hit gives them, like \
[guide/install.md:12].
4. Where hits contradict each other, say so and name both. If there is no answer in them, say that \
there is none, and what you searched for."""
_EXPLORE_TEXT = """\
Get to know this collection, which is described above. Look at its sources, then call search-query \
on it three to five times with queries that its sources suggest, and search-similar on a hit that \
is typical. Tell in at most fifteen lines: what it is about, what kinds of texts it holds, how \
recent it is, five questions that it answers well, and what seems to be missing."""


class Prompts:
    """The handlers of ``prompts/list`` and ``prompts/get``."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def listing(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """Both."""
        return ListPromptsResult(prompts=[_ANSWER, _EXPLORE])

    async def get(self, _ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """One, filled in.

        Raises:
            MCPError: if there is no such prompt or collection, or an argument is missing.
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
