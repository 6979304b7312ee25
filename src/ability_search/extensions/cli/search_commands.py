"""`search` and `similar`: query collections."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.client import Hits, Neighbours, SearchClient
from ability_search.client.tool_client import ToolClient
from ability_search.extension import SearchOptions, loaded
from ability_search.extensions.cli import output, parameters
from ability_search.extensions.cli.app import NOT_FOUND, app, bundled, command
from ability_search.extensions.cli.clients import CALL, CallOptions, with_client
from ability_search.extensions.cli.parameters import derived_options
from ability_search.search.response import Hit
from ability_search.store.index_doubts import INDEX_DOUBTED
from ability_search.tools.inputs import QueryInput

_OWN = ("collection", "query", "limit", "mode", "filter", "min_score", "understand", "time_range")
"""Fields of search-query that `search` declares itself."""
_FLAGS = {
    "queries": "--phrasing",
    "sources": "--source",
    "exclude_sources": "--exclude-source",
    "hypothetical_answer": "--hyde",
}
"""Options that are not named like their field."""
_SNIPPET = 300
_LEAD = 60
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="DAY", help="First day of the period that hits are about."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-k", "--k", min=1, help="Maximum number of results.")
]
MinScoreOption = Annotated[
    float | None,
    typer.Option(
        "--min-score",
        min=-1,
        max=1,
        help="Minimum cosine (`semantic` below a hit); by keywords only, minimum score.",
    ),
]


def query_options(function: Callable[..., None]) -> Callable[..., None]:
    """Replace ``**options`` of a command by the options of extensions and of the tool.

    There is one for each field of search-query that the command does not declare.
    """
    *own, _ = inspect.signature(function, eval_str=True).parameters.values()
    added = [option for each in loaded().search_options for option in bundled(each)]
    derived = derived_options(
        QueryInput, declared=_OWN, flags=_FLAGS, required={"collection": "*", "query": "any"}
    )
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*own, *added, *derived]
    )
    return function


@command(app, "search")
@query_options
def search(
    query: Annotated[str, "Query text."],
    collection: parameters.AllCollectionsOption = None,
    k: LimitOption = 10,
    semantic: Annotated[bool, "Semantic search only; fails without an embedder."] = False,
    keyword: Annotated[bool, "Keyword search only."] = False,
    hybrid: Annotated[bool, "Both (the default)."] = False,
    min_score: MinScoreOption = None,
    condition: parameters.FilterOption = None,
    start: FromOption = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last such day.")] = None,
    literal: Annotated[bool, "Ignore dates and exclusions in the query text."] = False,
    debug: Annotated[bool, "Print mode, model, timings and the reason of a fallback."] = False,
    calling: CallOptions = CALL,
    **options: Any,
) -> None:
    """Search collections by meaning, by keywords, or by both (hybrid).

    Without --collection, all collections are searched. If no embedder is available,
    hybrid search falls back to keywords with a warning; --semantic fails. Hits from
    files below this directory, or one above it, that changed later are marked as
    stale. Exit code 3 means that nothing was found.

    Example:
        ability-search search "how do I back it up" -c docs -k 5
        ability-search search "EADDRINUSE" --keyword --highlights
        ability-search search "release notes" --filter '{"metadata.year": {"$gte": 2025}}'
        ability-search search "retry policy" --source 'guide/**' --json
        ability-search search "retry policy" --phrasing backoff --phrasing "call again"
        ability-search search "what changed in March 2026 besides the outage"
        ability-search search "retry policy" --exclude HTTP --from 2026-01-01
        ability-search search "decisions of last week" --as-of 2026-03-25
        ability-search search "slow queries" --max-per-source 1 --expand neighbors
        ability-search search "slow queries" --artifact hub/search --own own/search
    """
    added = _added(options)
    wanted = {"collection": collection} | parameters.given(
        mode=_mode(semantic=semantic, keyword=keyword, hybrid=hybrid),
        min_score=min_score,
        filter=None if condition is None else parameters.json_object(condition, "--filter"),
        time_range=parameters.given(**{"from": start, "to": end}) or None,
        **options,
    )
    if literal:
        wanted["understand"] = False
    warnings = [
        text
        for each in added
        for text in each.apply(wanted, broker=calling.broker, hidden=calling.as_json)
    ]
    wanted["collection"] = parameters.all_or_named(wanted["collection"])
    found = with_client(
        calling.broker,
        lambda tools: SearchClient.over(tools, timeout=calling.timeout).query(
            query=query, limit=k, **wanted
        ),
    )
    if warnings:
        found.warnings = [*warnings, *(found.warnings or ())]
    _show(found, as_json=calling.as_json, debug=debug)


@command(app, "similar")
def similar(
    chunk: Annotated[str, "Id of a chunk, as printed by `search`; with -c, a source."],
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Collection of the source.")
    ] = None,
    k: LimitOption = 10,
    min_score: MinScoreOption = None,
    condition: parameters.FilterOption = None,
    calling: CallOptions = CALL,
) -> None:
    """Find the nearest neighbours of a chunk, or of a source, in its collection.

    Example:
        ability-search similar docs:guide/install.md:0 -k 5
        ability-search similar guide/install.md -c docs
    """
    wanted = None if condition is None else parameters.json_object(condition, "--filter")
    # A collection name has no colon, so the part before the first one is the name.
    name = collection or chunk.partition(":")[0]
    start = {"source" if collection else "chunk_id": chunk}
    found = with_client(
        calling.broker,
        lambda tools: SearchClient.over(tools, timeout=calling.timeout).similar(
            name, **start, limit=k, filter=wanted, min_score=min_score
        ),
    )
    _show(found, as_json=calling.as_json)


@command(app, "mark")
def mark(
    chunks: Annotated[
        list[str], typer.Argument(metavar="CHUNK...", help="Ids of chunks, as printed by `search`.")
    ],
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="Agent that the mark is recorded for.")
    ],
    not_useful: Annotated[bool, "Mark them as not useful instead."] = False,
    broker: parameters.BrokerOption = None,
    timeout: parameters.TimeoutOption = 60.0,
) -> None:
    """Mark hits as useful, or not useful, for an agent.

    Queries with --decay '{"agentId": NAME}' then score them higher, or lower, for
    this agent. A later mark replaces an earlier one.

    Example:
        ability-search mark docs:guide/install.md:0 --agent support
        ability-search mark docs:guide/old.md:3 --agent support --not-useful
    """
    by_collection: dict[str, list[str]] = {}
    for chunk in dict.fromkeys(chunks):
        by_collection.setdefault(chunk.partition(":")[0], []).append(chunk)

    async def work(tools: ToolClient) -> None:
        client = SearchClient.over(tools, timeout=timeout)
        for name, own in by_collection.items():
            for chunk in own:
                await client.similar(name, chunk_id=chunk, limit=1)  # fails if there is none
            marks = {"agentId": agent, "notUseful" if not_useful else "useful": own}
            # A query records the marks; this one finds nothing that would count as shown.
            nothing: dict[str, Any] = {"source": {"$in": []}}
            await client.query(name, agent, limit=1, mode="keyword", filter=nothing, decay=marks)

    with_client(broker, work)
    output.stdout().print(f"marked {output.counted(sum(map(len, by_collection.values())), 'hit')}")


def _added(options: dict[str, Any]) -> list[SearchOptions]:
    """Take the options of extensions out of those of the command."""
    return [
        each(**{field.name: options.pop(field.name) for field in fields(each)})
        for each in loaded().search_options
    ]


def _mode(**flags: bool) -> str | None:
    chosen = [name for name, wanted in flags.items() if wanted]
    if len(chosen) > 1:
        options = " and ".join(f"--{name}" for name in chosen)
        raise typer.BadParameter(f"{options} are mutually exclusive")
    return chosen[0] if chosen else None


def _show(found: Hits | Neighbours, *, as_json: bool, debug: bool = False) -> None:
    stale = stale_chunks(found.results)
    if as_json:
        shown = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for hit in shown["results"]:
            hit |= {"stale": True} if hit["chunkId"] in stale else {}
        output.print_json(shown)
    else:
        for place, hit in enumerate(found.results, start=1):
            print_hit(place, hit, stale=hit.chunk_id in stale)
        if isinstance(found, Hits) and debug:
            _print_debug(found)
        if not found.results:
            output.stderr().print("nothing found")
        if isinstance(found, Hits):
            if found.degraded:
                names = found.degraded.collections
                what = f"{', '.join(names)}: " if names else ""
                mode, reason = found.degraded.mode, found.degraded.reason
                how = "" if found.degraded.code == INDEX_DOUBTED else f"searched by {mode} only: "
                output.warn(f"{what}{how}{reason}")
            for warning in found.warnings or ():
                output.warn(warning)
    if not found.results:
        raise typer.Exit(NOT_FOUND)


def _print_debug(found: Hits) -> None:
    degraded, understood = found.degraded, found.understood
    shown = understood.model_dump(by_alias=True, exclude_none=True) if understood else {}
    pairs: list[tuple[str, object]] = [
        ("mode", found.mode),
        ("model", found.model),
        ("understood", json.dumps(shown)),
        ("fell back", f"{degraded.reason} ({degraded.code})" if degraded else "no"),
    ]
    pairs += [(f"ms {step}", ms) for step, ms in found.timings.items()]
    pairs += [(f"explain {name}", json.dumps(each)) for name, each in (found.explain or {}).items()]
    output.print_pairs(pairs)


def stale_chunks(hits: Sequence[Hit]) -> set[str]:
    """Return the chunkIds of hits whose files were changed after they were indexed.

    Sources are files of this directory or of one above it if at least half of a collection's hits
    exist there.
    """
    by_collection: dict[str, list[Hit]] = {}
    for hit in hits:
        by_collection.setdefault(hit.chunk_id.partition(":")[0], []).append(hit)
    stale = set()
    here = Path.cwd()
    for own in by_collection.values():
        for root in (here, *here.parents):
            files = [each for each in own if os.path.isfile(root / _file(each))]
            if 2 * len(files) >= len(own):
                stale |= {each.chunk_id for each in files if _is_newer(root / _file(each), each)}
                break
    return stale


def _file(hit: Hit) -> str:
    return hit.of or hit.source


def _is_newer(file: Path, hit: Hit) -> bool:
    if hit.created_at is None:
        return False
    return file.stat().st_mtime > datetime.fromisoformat(hit.created_at).timestamp()


def print_hit(place: int, hit: Hit, *, stale: bool) -> None:
    """Print a hit with its place among all; ``stale`` if its file changed later."""
    out = output.stdout()
    where = output.plain(place_of(hit))
    title = output.plain(hit.breadcrumb or hit.title)
    out.print(f"[bold]{place}.[/bold] [green]{hit.score:.3f}[/green] [cyan]{where}[/cyan]  {title}")
    if hit.of:
        out.print(f"   of {output.plain(hit.of)}", soft_wrap=True)
    if stale:
        out.print("   [yellow]changed since it was indexed[/yellow]")
    for line in _snippet(hit).splitlines():
        output.print_indented(out, line, 3)
    scores = ", ".join(f"{name} {score:.3f}" for name, score in hit.scores.items())
    out.print(f"   [dim]{output.plain(hit.chunk_id)}  {scores}[/dim]")
    if hit.explain:
        out.print(f"   [dim]{output.plain(json.dumps(hit.explain))}[/dim]")
    out.print()


def place_of(hit: Hit) -> str:
    """Return the source of a hit, with its page or its first line."""
    if hit.page:
        return f"{hit.source} p. {hit.page}"
    return f"{hit.source}:{hit.start_line}" if hit.start_line else hit.source


def _snippet(hit: Hit) -> str:
    """Return the beginning of the text, or the text around the first match; mark matches."""
    content, marks = hit.content, hit.highlights or []
    begin = max(0, marks[0].start - _LEAD) if marks else 0
    end = min(len(content), begin + _SNIPPET)
    parts = ["..."] if begin else []
    position = begin
    for mark in marks:
        if mark.start < position or mark.end > end:
            continue
        parts += [output.plain(content[position : mark.start], lines=True)]
        match = output.plain(content[mark.start : mark.end], lines=True)
        parts += [f"[bold yellow]{match}[/bold yellow]"]
        position = mark.end
    parts.append(output.plain(content[position:end], lines=True))
    if end < len(content):
        parts.append("...")
    return "\n".join(line for line in "".join(parts).splitlines() if line.strip())
