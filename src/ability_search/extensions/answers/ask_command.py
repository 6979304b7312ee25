"""`ask`: answer a question from indexed texts."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.client.tool_client import ToolClient
from ability_search.client.trust import require_trusted
from ability_search.config.model_settings import Expansion
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command
from ability_search.extensions.cli.clients import CALL, CallOptions, with_client
from ability_search.extensions.cli.parameters import (
    AllCollectionsOption,
    FilterOption,
    all_or_named,
    json_object,
)
from ability_search.extensions.cli.search_commands import place_of, print_hit
from kadi_client import Connection

if TYPE_CHECKING:
    from ability_search.extensions.answers.answerer import AskResult
    from ability_search.extensions.answers.citations import Sentence


@command(app, "ask")
def ask(
    question: Annotated[str, "The question."],
    collection: AllCollectionsOption = None,
    condition: FilterOption = None,
    chat_model: Annotated[str | None, "Language model.  [default: answer_model]"] = None,
    calling: CallOptions = CALL,
) -> None:
    """Answer a question from indexed texts, with citations that are checked.

    A search finds passages, and the language model of the settings (expansion_*,
    answer_*) answers from them. Each sentence is printed once it is checked:
    sentences with numbers or names that are not in the passages are left out. Without
    a language model, the passages are printed. Exit code 3 means that the sources do
    not have the answer. --timeout applies to the search.

    Example:
        ability-search ask "when do the backups run?" -c docs
        ability-search ask "who approved the budget?" --filter '{"metadata.year": 2026}' --json
    """
    from ability_search.extensions.answers.answerer import AskInput, open_answerer

    asked = AskInput(
        query=question,
        collection=all_or_named(collection),
        filter=None if condition is None else json_object(condition, "--filter"),
        chat_model=chat_model,
    )

    async def work(client: ToolClient) -> AskResult:
        require_trusted(client.settings, os.environ, Expansion)

        async def connect() -> Connection:
            return client.connection

        find = partial(client.call, "search-query", timeout=calling.timeout)
        async with open_answerer(client.settings, find, connect) as answerer:
            return await answerer.answer(asked, None if calling.as_json else _print_sentence)

    answer = with_client(calling.broker, work)
    if not calling.printed(answer.model_dump(mode="json", by_alias=True, exclude_none=True)):
        _print_sources(answer)
    if answer.outcome == "not_in_sources":
        raise typer.Exit(NOT_FOUND)


def _print_sentence(sentence: Sentence) -> None:
    text = output.plain(sentence.text, lines=True)
    missing = output.plain(", ".join(sentence.missing or ()))
    if sentence.support == "none":
        why = f"not in the passages: {missing}" if missing else "no passage has its words"
        output.stderr().print(f"[dim]left out: {text} ({why})[/dim]")
        return
    cited = output.plain("".join(f"[{number}]" for number in sentence.citations))
    doubt = f" [dim](few words are in the passages: {missing})[/dim]"
    shown = f"{text} [cyan]{cited}[/cyan]{doubt if sentence.support == 'partial' else ''}"
    output.stdout().print(shown, soft_wrap=True)


def _print_sources(answer: AskResult) -> None:
    """Print the cited passages of an answer, or why there is none, and all passages."""
    out = output.stdout()
    for warning in answer.warnings or ():
        output.warn(warning)
    if answer.outcome == "answered":
        out.print()
        cited = {number for each in answer.sentences for number in each.citations}
        for number in sorted(cited):
            hit = answer.passages[number - 1]
            place = output.plain(f"[{number}] {place_of(hit)}  {hit.breadcrumb or hit.title}")
            out.print(f"[cyan]{place}[/cyan]", soft_wrap=True)
        return
    if answer.outcome == "not_in_sources":
        output.stderr().print(f"not in the sources: {output.plain(answer.reason)}")
    else:
        output.warn(f"no answer, only passages: {answer.reason}")
        for number, hit in enumerate(answer.passages, start=1):
            print_hit(number, hit, stale=False)
