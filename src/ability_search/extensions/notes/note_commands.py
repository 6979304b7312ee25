"""`consolidate`: duplicates, contradictions, stale notes and missing links of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

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
from ability_search.extensions.notes.consolidation_report import Judge

_SHOWN = 10
"""Findings of each kind in the summary."""
_STATEMENTS = ("judge", "rule", "statement", "otherStatement")


@command(app, "consolidate")
def consolidate(
    collection: CollectionArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Set duplicates aside and add the missing links.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back what the last --apply changed.")
    ] = False,
    judge: Annotated[
        Judge,
        typer.Option(help="Who decides on contradictions: `chat` is a language model."),
    ] = "rules",
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
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
    report = run_reported(broker, "notes-consolidate", wanted, timeout=timeout, hidden=as_json)
    if as_json:
        output.print_json(report)
        return
    for warning in report.get("warnings", ()):
        output.warn(warning)
    counts = report["counts"]
    output.print_pairs(
        (
            ("notes", f"{report['notes']:,}, {report['chunks']:,} chunks"),
            *((name, f"{counts[name]:,}") for name in counts),
            ("changed", f"{report['applied']:,}"),
            ("restored", f"{report['undone']:,}"),
        )
    )
    _print("duplicates", report["duplicates"][:_SHOWN], ("cosine", "source", "kept"))
    _print("contradictions", report["contradictions"][:_SHOWN], _STATEMENTS)
    _print("stale", report["stale"][:_SHOWN], ("reason", "source", "by", "date"))
    _print("links", report["links"][:_SHOWN], ("kind", "source", "target", "reason"))


def _print(title: str, rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> None:
    if rows:
        output.stdout().print(f"{title}:")
        output.print_table(columns, [[_cell(row.get(name)) for name in columns] for row in rows])


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value or "")
