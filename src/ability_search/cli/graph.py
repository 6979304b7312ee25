"""`analyze`: the graph of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.clients import with_client
from ability_search.cli.parameters import (
    BrokerOption,
    CollectionArgument,
    JsonOption,
    TimeoutOption,
)
from ability_search.cli.progress import progress_bar
from ability_search.client.tool_client import LONG_SECONDS, ToolClient

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
_SIZE, _MARGIN = 800, 20
_KINDS = {
    "link": "#d55e00",
    "tags": "#009e73",
    "session": "#e69f00",
    "order": "#bbbbbb",
    "similarity": "#56b4e9",
}
_SIDES = {-1: "#0072b2", 0: "#777777", 1: "#cc79a7"}
# Okabe and Ito, Color Universal Design, 2008: distinguishable with any colour vision.


@command(app, "analyze")
def analyze(
    collection: CollectionArgument,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the most central chunks; an SVG file.")
    ] = None,
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
        ability-search analyze docs --plot docs.svg
    """
    if plot is not None and plot.suffix.lower() != ".svg":
        raise typer.BadParameter(f"{plot} must end in .svg", param_hint="--plot")

    async def work(client: ToolClient) -> dict[str, Any]:
        wanted = {"collection": collection, "analyze": True}
        with progress_bar(collection, total=None, hidden=as_json) as advance:
            await client.run_job("search-reindex", wanted, timeout=timeout, advance=advance)
        wanted = {"collection": collection, "limit": 1, "include": ["graph"]}
        info = await client.call("search-collection-info", wanted, timeout=timeout)
        found: dict[str, Any] = info["graph"]
        return found

    analysis = with_client(broker, work)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.write_text(drawn(analysis["drawing"]), encoding="utf-8")
    if as_json:
        output.print_json(analysis)
    else:
        _print_analysis(analysis)


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


def drawn(drawing: Mapping[str, Any]) -> str:
    """Return a drawing of the graph as an SVG document; sides and kinds of edges have colours."""
    nodes, edges = drawing["nodes"], drawing["edges"]
    across, down = (_placed([node[axis] for node in nodes]) for axis in ("x", "y"))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_SIZE}" height="{_SIZE}" fill="#fff"/>',
    ]
    for edge in edges:
        start, end = edge["start"], edge["end"]
        lines.append(
            f'<line x1="{across[start]}" y1="{_SIZE - down[start]}" x2="{across[end]}"'
            f' y2="{_SIZE - down[end]}" stroke="{_KINDS[edge["kind"]]}" stroke-opacity=".5"/>'
        )
    for node, x, y in zip(nodes, across, down, strict=True):
        lines.append(
            f'<circle cx="{x}" cy="{_SIZE - y}" r="{3 + 7 * node["centrality"]:.1f}"'
            f' fill="{_SIDES[node["side"]]}"><title>{escape(node["chunkId"])}</title></circle>'
        )
    for place, (kind, color) in enumerate(_KINDS.items()):
        lines.append(f'<text x="8" y="{16 * (place + 1)}" fill="{color}">{kind}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _placed(values: Sequence[float]) -> list[float]:
    """Scale values to the drawing; equal ones are in its middle."""
    least, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    room = _SIZE - 2 * _MARGIN
    shares = [(value - least) / span if span else 0.5 for value in values]
    return [round(_MARGIN + room * share, 1) for share in shares]
