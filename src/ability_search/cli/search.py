"""`search` and `similar`: query collections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ability_search.cli import output
from ability_search.cli.app import NOT_FOUND, app, command
from ability_search.cli.clients import call_tool
from ability_search.cli.parameters import (
    BrokerOption,
    JsonOption,
    TimeoutOption,
    given,
    json_object,
)

_SNIPPET = 300
_LEAD = 60

FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="JSON", help='Filter, such as {"metadata.lang": "en"}.'),
]
LimitOption = Annotated[int, typer.Option("--k", "-k", min=1, help="Maximum number of results.")]
MinScoreOption = Annotated[
    float | None, typer.Option("--min-score", min=-1, max=1, help="Minimum score.")
]


@command(app, "search")
def search(
    query: Annotated[str, typer.Argument(help="Query text.")],
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", help="Collection, repeatable.  [default: all]"),
    ] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Search an artifact instead; it is imported once."),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Prefer this artifact of your own if its revision and model match."
        ),
    ] = None,
    k: LimitOption = 10,
    offset: Annotated[int, typer.Option(min=0, help="Number of results to skip.")] = 0,
    semantic: Annotated[
        bool, typer.Option("--semantic", help="Semantic search only; fails without an embedder.")
    ] = False,
    keyword: Annotated[bool, typer.Option("--keyword", help="Keyword search only.")] = False,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Both (the default).")] = False,
    min_score: MinScoreOption = None,
    condition: FilterOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="GLOB", help="Search only these sources."),
    ] = None,
    exclude_source: Annotated[
        list[str] | None,
        typer.Option("--exclude-source", metavar="GLOB", help="Skip these sources."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="TEXT", help="Topic that hits should not be about."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="First day of the period that hits are about."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last such day.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Date or instant of the query.  [default: now]"),
    ] = None,
    literal: Annotated[
        bool, typer.Option("--literal", help="Ignore dates and exclusions in the query text.")
    ] = False,
    hyde: Annotated[
        str | None,
        typer.Option(
            "--hyde", metavar="TEXT", help="Hypothetical answer to embed instead of the query."
        ),
    ] = None,
    highlights: Annotated[bool, typer.Option("--highlights", help="Mark the matches.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the scores.")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Print mode, model, timings and the reason of a fallback."),
    ] = False,
    broker: BrokerOption = None,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Search collections by meaning, by keywords, or by both (hybrid).

    Without --collection, all collections are searched. If no embedder is available,
    hybrid search falls back to keywords with a warning; --semantic fails. Exit code
    3 means that nothing was found.

    Example:
        ability-search search "how do I back it up" -c docs -k 5
        ability-search search "EADDRINUSE" --keyword --highlights
        ability-search search "release notes" --filter '{"metadata.year": {"$gte": 2025}}'
        ability-search search "retry policy" --source 'guide/**' --json
        ability-search search "what changed in March 2026 besides the outage"
        ability-search search "retry policy" --exclude HTTP --from 2026-01-01
        ability-search search "decisions of last week" --as-of 2026-03-25
        ability-search search "slow queries" --artifact hub/search --own own/search
    """
    messages: list[str] = []
    if artifact is not None or own is not None:
        if artifact is None:
            raise typer.BadParameter("requires --artifact", param_hint="--own")
        if collection:
            raise typer.BadParameter("not allowed with --collection", param_hint="--artifact")
        name, messages = _choose_collection(broker, artifact, own, hidden=as_json)
        collection = [name]
    answer = call_tool(
        broker,
        "search-query",
        given(
            query=query,
            collection=_collections(collection),
            limit=k,
            offset=offset or None,
            mode=_mode(semantic=semantic, keyword=keyword, hybrid=hybrid),
            minScore=min_score,
            filter=None if condition is None else json_object(condition, "--filter"),
            sources=source,
            excludeSources=exclude_source,
            exclude=exclude,
            timeRange=given(**{"from": start, "to": end}) or None,
            asOf=as_of,
            hypotheticalAnswer=hyde,
            highlights=highlights,
            explain=explain,
        )
        | ({"understand": False} if literal else {}),
        timeout,
    )
    if messages:
        answer["warnings"] = [*messages, *(answer.get("warnings") or ())]
    _show(answer, as_json=as_json, explain=explain, debug=debug)


@command(app, "similar")
def similar(
    chunk: Annotated[str, typer.Argument(help="Id of a chunk, as printed by `search`.")],
    k: LimitOption = 10,
    min_score: MinScoreOption = None,
    condition: FilterOption = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Find the nearest neighbours of a chunk in its collection.

    Example:
        ability-search similar docs:guide/install.md:0 -k 5
    """
    answer = call_tool(
        broker,
        "search-similar",
        given(
            # A collection name has no colon, so the part before the first one is the name.
            collection=chunk.partition(":")[0],
            chunkId=chunk,
            limit=k,
            minScore=min_score,
            filter=None if condition is None else json_object(condition, "--filter"),
        ),
        timeout,
    )
    _show(answer, as_json=as_json, explain=False, debug=False)


def _choose_collection(
    broker: str | None, artifact: Path, own: Path | None, *, hidden: bool
) -> tuple[str, list[str]]:
    """Return the collection to search for artifacts, and warnings about the choice."""
    from ability_search.cli.transfer import with_artifacts

    return with_artifacts(
        broker, lambda _, artifacts: artifacts.choose_collection(artifact, own), hidden=hidden
    )


def _collections(names: Sequence[str] | None) -> str | list[str]:
    if not names:
        return "*"
    return names[0] if len(names) == 1 else list(names)


def _mode(**flags: bool) -> str | None:
    chosen = [name for name, wanted in flags.items() if wanted]
    if len(chosen) > 1:
        options = " and ".join(f"--{name}" for name in chosen)
        raise typer.BadParameter(f"{options} are mutually exclusive")
    return chosen[0] if chosen else None


def _show(answer: Mapping[str, Any], *, as_json: bool, explain: bool, debug: bool) -> None:
    hits = answer["results"]
    if as_json:
        output.print_json(answer)
    else:
        for place, hit in enumerate(hits, start=1):
            _print_hit(place, hit, explain=explain)
        if debug:
            _print_debug(answer)
        if not hits:
            output.stderr().print("nothing found")
        _print_warnings(answer)
    if not hits:
        raise typer.Exit(NOT_FOUND)


def _print_hit(place: int, hit: Mapping[str, Any], *, explain: bool) -> None:
    out = output.stdout()
    where = output.plain(hit["source"])
    if hit.get("page"):
        where += f" p. {hit['page']}"
    elif hit.get("startLine"):
        where += f":{hit['startLine']}"
    title = output.plain(hit.get("breadcrumb") or hit["title"])
    out.print(
        f"[bold]{place}.[/bold] [green]{hit['score']:.3f}[/green] [cyan]{where}[/cyan]  {title}",
        soft_wrap=True,
    )
    for line in _snippet(hit).splitlines():
        out.print(f"   {line}", soft_wrap=True)
    scores = ", ".join(f"{name} {score:.3f}" for name, score in hit.get("scores", {}).items())
    out.print(f"   [dim]{output.plain(hit['chunkId'])}  {scores}[/dim]", soft_wrap=True)
    if explain and hit.get("explain"):
        out.print(f"   [dim]{output.plain(json.dumps(hit['explain']))}[/dim]", soft_wrap=True)
    out.print()


def _snippet(hit: Mapping[str, Any]) -> str:
    """Return the beginning of the text, or the text around the first match; mark matches."""
    content: str = hit["content"]
    marks = [(mark["start"], mark["end"]) for mark in hit.get("highlights") or ()]
    begin = max(0, marks[0][0] - _LEAD) if marks else 0
    end = min(len(content), begin + _SNIPPET)
    parts = ["..."] if begin else []
    position = begin
    for first, last in marks:
        if first < position or last > end:
            continue
        parts += [output.plain(content[position:first])]
        parts += [f"[bold yellow]{output.plain(content[first:last])}[/bold yellow]"]
        position = last
    parts.append(output.plain(content[position:end]))
    if end < len(content):
        parts.append("...")
    return "\n".join(line for line in "".join(parts).splitlines() if line.strip())


def _print_debug(answer: Mapping[str, Any]) -> None:
    degraded = answer.get("degraded")
    pairs: list[tuple[str, object]] = [
        ("mode", answer.get("mode")),
        ("model", answer.get("model")),
        ("understood", json.dumps(answer.get("understood") or {})),
        ("fell back", f"{degraded['reason']} ({degraded['code']})" if degraded else "no"),
    ]
    pairs += [(f"ms {step}", ms) for step, ms in (answer.get("timings") or {}).items()]
    pairs += [
        (f"explain {name}", json.dumps(value))
        for name, value in (answer.get("explain") or {}).items()
    ]
    output.print_pairs(pairs)


def _print_warnings(answer: Mapping[str, Any]) -> None:
    degraded = answer.get("degraded")
    if degraded:
        output.warn(f"searched by {degraded['mode']} only: {degraded['reason']}")
    for warning in answer.get("warnings") or ():
        output.warn(escape(warning))
