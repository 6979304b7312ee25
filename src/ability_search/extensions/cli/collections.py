"""`collections`, `info`, `delete`, `reindex`: list and manage collections."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ability_search.client.tool_client import LONG_SECONDS
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command
from ability_search.extensions.cli.clients import call_tool, run_reported
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    CollectionArgument,
    JsonOption,
    TimeoutOption,
    YesOption,
    given,
    tool_fields,
)
from ability_search.index.index_fields import RebuildFields


@command(app, "collections")
def collections(
    broker: BrokerOption = None, timeout: TimeoutOption = 30.0, as_json: JsonOption = False
) -> None:
    """List all collections with the number and average size of their chunks.

    Example:
        ability-search collections
        ability-search collections --json
    """
    answer = call_tool(broker, "search-collections", {}, timeout)
    if as_json:
        output.print_json(answer)
        return
    found = answer["collections"]
    if not found:
        output.stderr().print("no collections yet; create one with `ability-search index PATH`")
        return
    columns = ("collection", "sources", "chunks", "avg tokens", "model", "dim", "updated (UTC)")
    keys = ("name", "sources", "chunks", "avgTokens", "model", "dimensions")
    rows = [(*(item[key] for key in keys), output.moment(str(item["updatedAt"]))) for item in found]
    output.print_table(columns, rows)


@command(app, "info")
def info(
    collection: CollectionArgument,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Sources per page.")] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Cursor of the next page, printed by the previous one.")
    ] = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Describe a collection and list its sources, one page at a time.

    Example:
        ability-search info docs --limit 100
    """
    answer = call_tool(
        broker,
        "search-collection-info",
        given(collection=collection, limit=limit, cursor=cursor),
        timeout,
    )
    if as_json:
        output.print_json(answer)
        return
    hidden = ("warnings", "sources", "nextCursor", "jobs")
    output.print_pairs(
        (name, ", ".join(value) or "none" if isinstance(value, list) else value)
        for name, value in answer.items()
        if name not in hidden
    )
    output.print_pairs((f"job {job['kind']}", _job_text(job)) for job in answer["jobs"])
    for source in answer["sources"]:
        output.stdout().print(f"  {output.plain(source)}")
    if answer.get("nextCursor"):
        output.stdout().print(f"next page: --cursor {answer['nextCursor']}")
    for warning in answer.get("warnings") or ():
        output.warn(warning)


def _job_text(job: dict[str, Any]) -> str:
    """Return the description of a job, on one line."""
    text = f"{job['state']}, {job['done']:,} of {output.counted(job['total'], 'source')}"
    if job["stage"] not in ("", job["state"]):
        text += f", {job['stage']}"
    if job.get("error"):
        text += f": {job['error']['message']}"
    return f"{text} ({output.moment(job['updatedAt'])} UTC, {job['jobId']})"


@command(app, "delete")
def delete(
    collection: CollectionArgument,
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", "-s", help="Delete only this source; repeatable."),
    ] = None,
    yes: YesOption = False,
    broker: BrokerOption = None,
    timeout: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Delete a collection, or sources of it.

    Exit code 3 means that the collection does not exist or has no chunks of the
    sources. Where nobody can be asked, nothing is deleted without --yes, and the exit
    code is 2.

    Example:
        ability-search delete docs --source guide/old.md
        ability-search delete docs --yes
    """
    named = ", ".join(sources or ())
    if not yes:
        what = f"{named} of collection {collection}" if sources else f"all of {collection}"
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"this deletes {what}; confirm with --yes", param_hint="--yes")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    answer = call_tool(
        broker, "search-delete", given(collection=collection, sources=sources), timeout
    )
    if as_json:
        output.print_json(answer)
    elif answer["deleted"] or not sources:
        output.stdout().print(f"deleted {output.counted(answer['deleted'], 'chunk')}")
    else:
        output.fail(
            f"{collection} has no chunks of {named}",
            f"`ability-search info {collection}` lists its sources.",
        )
    if sources and not answer["deleted"]:
        raise typer.Exit(NOT_FOUND)


@command(app, "reindex")
def reindex(
    collection: CollectionArgument,
    *,
    indexing: RebuildFields,
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete all chunks, keep settings.")
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Do not wait; `info` shows the progress.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the running rebuild.")] = False,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Chunk and embed a collection again from its stored texts.

    Searches use the old chunks until the new ones are complete. Ctrl-C cancels the
    job; if this command or the worker is killed, the job continues.

    Example:
        ability-search reindex docs --model all-MiniLM-L6-v2
        ability-search reindex docs --background
        ability-search reindex docs --cancel
    """
    wanted = given(collection=collection, clear=clear, background=background, cancel=cancel)
    wanted |= tool_fields(indexing)

    answer = run_reported(broker, "search-reindex", wanted, timeout=timeout, hidden=as_json)
    if as_json:
        output.print_json(answer)
    else:
        output.stdout().print(output.plain(answer["message"]))
    for item in answer.get("failed") or ():
        output.warn(f"{item['source']}: {item['error']}")
    for warning in answer.get("warnings") or ():
        output.warn(warning)
