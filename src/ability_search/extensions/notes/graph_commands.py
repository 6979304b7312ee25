"""`analyze`: the graph of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from ability_search.client.tool_client import LONG_SECONDS
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.clients import run_reported
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    CollectionArgument,
    JsonOption,
    TimeoutOption,
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
    wanted = {"collection": collection, "analyze": True}
    analysis = run_reported(broker, wanted, "graph", timeout=timeout, hidden=as_json)
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


@dataclass(frozen=True, slots=True)
class HopsOption:
    """The option of `search` for graph expansion with all other values as by default."""

    place: ClassVar[int] = 100

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
