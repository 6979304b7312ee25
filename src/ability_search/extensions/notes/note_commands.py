"""`analyze`, `paths`, `consolidate`: the graph and the notes of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command
from ability_search.extensions.cli.clients import CALL, LONG_CALL, CallOptions
from ability_search.extensions.cli.parameters import CollectionArgument
from ability_search.extensions.notes.consolidation_report import Judge

_RANKED = 5
"""Chunks of each list in the summary of an analysis."""
_LISTS = {
    "central": "central (PageRank)",
    "bridges": "bridges (betweenness)",
    "hubs": "diverse hubs (entropy of edges)",
    "boundary": "boundary (Fiedler vector)",
    "novel": "novel (above noise)",
    "surprising": "surprising (nats)",
}
_FINDINGS = 10
"""Findings of each kind in the summary of a consolidation."""
_COLUMNS = {
    "duplicates": ("cosine", "source", "kept"),
    "contradictions": ("judge", "rule", "statement", "otherStatement"),
    "stale": ("reason", "source", "by", "date"),
    "links": ("kind", "source", "target", "reason"),
}


@command(app, "analyze")
def analyze(collection: CollectionArgument, options: CallOptions = LONG_CALL) -> None:
    """Analyse the graph of a collection's chunks.

    Chunks are connected by links, tags and sessions in common, order in the text, and
    similarity. The scores are stored for the option boost of a query. The worker needs
    the extra analysis.

    Example:
        ability-search analyze docs
    """
    analysis = options.run("notes-analyze", {"collection": collection})
    if not options.printed(analysis):
        _print_analysis(analysis)


def _print_analysis(analysis: Mapping[str, Any]) -> None:
    spectrum, novelty = analysis["spectrum"], analysis["novelty"]
    edges = [f"{count:,} {kind}" for kind, count in analysis["edges"].items() if count]
    sizes = [
        f"{each['components']:,} of {output.counted(each['chunks'], 'chunk')}"
        for each in analysis["components"]
    ]
    more = f", {len(sizes) - _RANKED} more sizes" if len(sizes) > _RANKED else ""
    gap = f"{spectrum['gap']:.4g}" if spectrum["converged"] else f"at most {spectrum['gap']:.4g}"
    one, other = spectrum["sides"]
    outliers = f"{len(novelty['outliers'])} directions above noise ({novelty['edge']:.3g})"
    output.print_pairs(
        (
            ("chunks", f"{analysis['chunks']:,}"),
            ("edges", ", ".join(edges) or "none"),
            ("components", (", ".join(sizes[:_RANKED]) or "none") + more),
            ("spectral gap", f"{gap}; the largest component falls into {one:,} and {other:,}"),
            ("novelty", outliers),
        )
    )
    for name, title in _LISTS.items():
        if analysis[name]:
            output.stdout().print(f"{title}:")
        for each in analysis[name][:_RANKED]:
            text = f"  {each['value']:.4g}  {each['chunkId']}  {each['title']}"
            output.stdout().print(output.plain(text))


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
    options: CallOptions = CALL,
) -> None:
    """Find the paths between two sources over links, and the sources that both are linked with.

    Exit code 3 means that there is no path.

    Example:
        ability-search paths docs guide/install.md guide/update.md
    """
    wanted = {"collection": collection, "source": source, "to": to}
    found = options.call("notes-paths", **wanted, hops=hops, limit=limit)
    if not options.printed(found):
        _print_paths(found)
    if not found["paths"]:
        raise typer.Exit(NOT_FOUND)


def _print_paths(found: Mapping[str, Any]) -> None:
    for path in found["paths"]:
        first, *others = path["sources"]
        steps = [f"-{kind}- {to}" for kind, to in zip(path["via"], others, strict=True)]
        output.stdout().print(output.plain(f"{path['strength']:.3f}  {' '.join([first, *steps])}"))
    if found["common"]:
        output.stdout().print(output.plain(f"common: {', '.join(found['common'])}"))
    if not found["paths"]:
        output.stderr().print("no path found")


@command(app, "consolidate")
def consolidate(
    collection: CollectionArgument,
    apply: Annotated[bool, "Set duplicates aside and add the missing links."] = False,
    undo: Annotated[bool, "Take back what the last --apply changed."] = False,
    judge: Annotated[Judge, "Who decides on contradictions: `chat` is a language model."] = "rules",
    options: CallOptions = LONG_CALL,
) -> None:
    """Report duplicates, contradictions, stale notes and missing links.

    Nothing is changed without --apply. The texts of duplicates are kept; --undo returns them to
    the results. The worker needs the extra analysis.

    Example:
        ability-search consolidate history-ada
        ability-search consolidate history-ada --apply
        ability-search consolidate history-ada --judge chat
    """
    if apply and undo:
        raise typer.BadParameter("it excludes --apply", param_hint="--undo")
    wanted = {"collection": collection, "apply": apply, "undo": undo, "judge": judge}
    report = options.run("notes-consolidate", wanted)
    if options.printed(report):
        return
    for warning in report.get("warnings", ()):
        output.warn(warning)
    output.print_pairs(
        (
            ("notes", f"{report['notes']:,}, {report['chunks']:,} chunks"),
            *((name, f"{count:,}") for name, count in report["counts"].items()),
            ("changed", f"{report['applied']:,}"),
            ("restored", f"{report['undone']:,}"),
        )
    )
    for title, columns in _COLUMNS.items():
        rows = report[title][:_FINDINGS]
        if rows:
            output.stdout().print(f"{title}:")
            output.print_table(
                columns, [[_cell(row.get(name)) for name in columns] for row in rows]
            )


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value or "")


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
