"""`pinned`: the documents that an editor pinned; `doctor` checks that there are some."""

from __future__ import annotations

from typing import Annotated

import typer

from ability_search.client.tool_client import ToolClient
from ability_search.errors import NotFound
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command
from ability_search.extensions.cli.clients import call_tool, client_settings
from ability_search.extensions.cli.parameters import BrokerOption, CollectionArgument, TimeoutOption
from helpdesk.settings import Helpdesk


@command(app, "pinned")
def pinned(
    collection: CollectionArgument,
    subject: Annotated[str, typer.Argument(help="What they are to be about.")],
    broker: BrokerOption = None,
    timeout: TimeoutOption = 60.0,
) -> None:
    """List the pinned documents on a subject.

    Example:
        ability-search pinned calls 'reset a password'
    """
    asked = {
        "collection": collection,
        "query": subject,
        "filter": {"metadata.pinned": True},
        "maxPerSource": 1,
        "limit": client_settings().of(Helpdesk).listed,
    }
    hits = call_tool(broker, "search-query", asked, timeout)["results"]
    for hit in hits:
        output.stdout().print(output.plain(f"{hit['source']}  {hit['title']}"))
    if not hits:
        raise typer.Exit(NOT_FOUND)


async def check_pinned(client: ToolClient) -> str:
    """Return that there are pinned documents.

    Raises:
        NotFound: if there are none.
    """
    pinned = {"metadata.pinned": True}
    asked = {"collection": "*", "query": "pinned", "filter": pinned, "limit": 1}
    found = await client.call("search-query", asked, timeout=10.0)
    if not found["results"]:
        hint = "Write `pinned: true` into the front matter of a document, and index it."
        raise NotFound("document", "pinned", hint=hint)
    return "there are pinned documents"
