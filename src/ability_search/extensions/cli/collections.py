"""`collections`, `info`, `delete`, `reindex`: list and manage collections."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.client.tool_client import ToolClient, check_unicode, not_offered
from ability_search.extensions.cli import output, parameters
from ability_search.extensions.cli.app import FAILED, NOT_FOUND, app, command
from ability_search.extensions.cli.clients import LONG_CALL, CallOptions, with_client
from ability_search.index.index_fields import RebuildFields
from kadi_client import NoProvider

_QUICK = CallOptions(timeout=30.0)
_DELETION = CallOptions(timeout=120.0)


@command(app, "collections")
def collections(options: CallOptions = _QUICK) -> None:
    """List all collections with the number and average size of their chunks.

    Example:
        ability-search collections
        ability-search collections --json
    """
    answer = options.call("search-collections")
    if options.printed(answer):
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
    collection: parameters.CollectionArgument,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Sources per page.")] = 20,
    cursor: Annotated[str | None, "Cursor of the next page, printed by the previous one."] = None,
    options: CallOptions = _QUICK,
) -> None:
    """Describe a collection and list its sources, one page at a time.

    Example:
        ability-search info docs --limit 100
    """
    answer = options.call(
        "search-collection-info", collection=collection, limit=limit, cursor=cursor
    )
    if options.printed(answer):
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
    collection: parameters.CollectionArgument,
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", "-s", help="Delete only this source; repeatable."),
    ] = None,
    yes: parameters.YesOption = False,
    options: CallOptions = _DELETION,
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
    answer = options.call("search-delete", collection=collection, sources=sources)
    missing = sources and not answer["deleted"]
    if not options.printed(answer) and missing:
        output.fail(
            f"{collection} has no chunks of {named}",
            f"`ability-search info {collection}` lists its sources.",
        )
    elif not options.as_json:
        output.stdout().print(f"deleted {output.counted(answer['deleted'], 'chunk')}")
    if missing:
        raise typer.Exit(NOT_FOUND)


@command(app, "reindex")
def reindex(
    collection: parameters.CollectionArgument,
    *,
    indexing: RebuildFields,
    clear: Annotated[bool, "Delete all chunks, keep settings."] = False,
    background: Annotated[bool, "Do not wait; `info` shows the progress."] = False,
    cancel: Annotated[bool, "Cancel the running rebuild."] = False,
    options: CallOptions = LONG_CALL,
) -> None:
    """Chunk and embed a collection again from its stored texts.

    Searches use the old chunks until the new ones are complete. Ctrl-C cancels the
    job; if this command or the worker is killed, the job continues.

    Example:
        ability-search reindex docs --model all-MiniLM-L6-v2
        ability-search reindex docs --background
        ability-search reindex docs --cancel
    """
    wanted = parameters.given(
        collection=collection, clear=clear, background=background, cancel=cancel
    )
    wanted |= parameters.tool_fields(indexing)

    answer = options.run("search-reindex", wanted)
    if not options.printed(answer):
        output.stdout().print(output.plain(answer["message"]))
    for item in answer.get("failed") or ():
        output.warn(f"{item['source']}: {item['error']}")
    for warning in answer.get("warnings") or ():
        output.warn(warning)


@command(app, "call")
def call(
    tool: Annotated[str, "Name of the tool."],
    tool_input: Annotated[
        str,
        typer.Argument(
            metavar="[JSON]", help="Input of the tool; @FILE reads a file, - reads stdin."
        ),
    ] = "{}",
    broker: parameters.BrokerOption = None,
    timeout: parameters.TimeoutOption = 60.0,
) -> None:
    """Call any tool on the network and print its answer as JSON.

    Exit code 1 means that the answer has "success": false.

    Example:
        ability-search call search-collections
        ability-search call search-query '{"collection": "docs", "query": "backup"}'
        ability-search call search-index @documents.json --timeout 600
    """
    value = _read(tool_input)
    check_unicode(value)

    async def work(client: ToolClient) -> Any:
        try:
            return await client.connection.invoke(tool, value, timeout=timeout, check=False)
        except NoProvider as exc:
            refusal = await not_offered(client.connection, tool)
            if refusal is None:
                raise
            raise refusal from exc

    answer = with_client(broker, work)
    output.print_json(answer)
    if isinstance(answer, dict) and answer.get("success") is False:
        raise typer.Exit(FAILED)


def _read(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{exc.filename}: {exc.strerror}", param_hint="JSON") from exc
    except ValueError as exc:
        raise typer.BadParameter(f"not UTF-8: {exc}", param_hint="JSON") from exc
    return parameters.json_object(text, "JSON")
