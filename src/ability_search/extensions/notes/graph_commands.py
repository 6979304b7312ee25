"""`analyze`, `paths`: the graph of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    given,
)

_SHOWN = 5
"""Chunks of each list in the summary."""
_LISTS = {
    "central": "central (PageRank)",
    "bridges": "bridges (betweenness)",
    "hubs": "diverse hubs (entropy of edges)",
    "boundary": "boundary (Fiedler vector)",
    "novel": "novel (above noise)",
    "surprising": "surprising (nats)",
}


@command(app, "analyze")
def analyze(
    collection: CollectionArgument,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Analyse the graph of a collection's chunks.

    Chunks are connected by links, tags and sessions in common, order in the text, and
    similarity. The scores are stored for the option boost of a query. The worker needs
    the extra analysis.

    Example:
        ability-search analyze docs
    """
    wanted = {"collection": collection}
    analysis = run_reported(broker, "notes-analyze", wanted, timeout=timeout, hidden=as_json)
    if as_json:
        output.print_json(analysis)
    else:
        _print_analysis(analysis)


@command(app, "paths")
def paths(
    collection: CollectionArgument,
    source: Annotated[str, typer.Argument(help="Source where the paths begin.")],
    to: Annotated[str, typer.Argument(help="Source where they end.")],
    hops: Annotated[
        int | None, typer.Option(min=1, max=3, help="Maximum number of links.  [default: 3]")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-k", min=1, help="Maximum number of paths.")
    ] = 10,
    broker: BrokerOption = None,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Find the paths between two sources over links, and the sources that both are linked with.

    Exit code 3 means that there is no path.

    Example:
        ability-search paths docs guide/install.md guide/update.md
    """
    wanted = given(collection=collection, source=source, to=to, hops=hops, limit=limit)
    found = call_tool(broker, "notes-paths", wanted, timeout)
    if as_json:
        output.print_json(found)
    else:
        _print_paths(found)
    if not found["paths"]:
        raise typer.Exit(NOT_FOUND)


def _print_paths(found: Mapping[str, Any]) -> None:
    for path in found["paths"]:
        parts = [path["sources"][0]]
        for kind, source in zip(path["via"], path["sources"][1:], strict=True):
            parts.append(f"-{kind}- {source}")
        output.stdout().print(output.plain(f"{path['strength']:.3f}  {' '.join(parts)}"))
    if found["common"]:
        output.stdout().print(output.plain(f"common: {', '.join(found['common'])}"))
    if not found["paths"]:
        output.stderr().print("no path found")


def _print_analysis(analysis: Mapping[str, Any]) -> None:
    spectrum, novelty = analysis["spectrum"], analysis["novelty"]
    edges = [f"{count:,} {kind}" for kind, count in analysis["edges"].items() if count]
    sizes = [
        f"{each['components']:,} of {output.counted(each['chunks'], 'chunk')}"
        for each in analysis["components"]
    ]
    more = f", {len(sizes) - _SHOWN} more sizes" if len(sizes) > _SHOWN else ""
    gap = f"{spectrum['gap']:.4g}" if spectrum["converged"] else f"at most {spectrum['gap']:.4g}"
    one, other = spectrum["sides"]
    output.print_pairs(
        (
            ("chunks", f"{analysis['chunks']:,}"),
            ("edges", ", ".join(edges) or "none"),
            ("components", (", ".join(sizes[:_SHOWN]) or "none") + more),
            ("spectral gap", f"{gap}; the largest component falls into {one:,} and {other:,}"),
            (
                "novelty",
                f"{len(novelty['outliers'])} directions above noise ({novelty['edge']:.3g})",
            ),
        )
    )
    for name, title in _LISTS.items():
        found: Sequence[Mapping[str, Any]] = analysis[name]
        if found:
            output.stdout().print(f"{title}:")
        for each in found[:_SHOWN]:
            text = f"  {each['value']:.4g}  {each['chunkId']}  {each['title']}"
            output.stdout().print(output.plain(text))


@dataclass(frozen=True, slots=True)
class HopsOption:
    """The option of `search` for graph expansion with all other values as by default."""

    hops: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="Graph expansion over this many links; see --graph."),
    ] = None

    def apply(self, request: dict[str, Any], *, broker: str | None, hidden: bool) -> Sequence[str]:
        """Set the number of links; there is nothing to warn of."""
        if self.hops is not None:
            graph = request.get("graph")
            hops = {"hops": self.hops}
            request["graph"] = graph.model_copy(update=hops) if graph else hops
        return ()
