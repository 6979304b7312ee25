"""Output of `eval`: a run and a comparison, as tables or JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from ability_search.cli import output
from ability_search.evaluation.runs import ModeRun, Run, means, summary, top_scores

if TYPE_CHECKING:
    from ability_search.evaluation.comparison import Change, Comparison, Difference

_UNUSABLE = re.compile(r"[^\w.-]+")
_LONGEST_TEXT = 60
_SMALLEST = 0.0005
"""Probability below which three decimals would show zero."""
_WORDS = ("mode", "category", "metric", "query", "text")
"""Columns of text."""


def run_file(path: Path, name: str) -> Path:
    """Return the file of a run: ``path`` if it ends in .json, else a file in that directory."""
    if path.suffix == ".json" and not path.is_dir():
        return path
    return path / f"{_UNUSABLE.sub('-', name)}.json"


def show_run(run: Run, *, as_json: bool) -> None:
    """Print the metrics of each mode, and by category if there are categories."""
    _warn(run)
    if as_json:
        output.print_json(summary(run))
        return
    out = output.stdout()
    for mode, found in run.modes.items():
        if categories := found.by_category():
            out.print(f"[bold]{mode}[/bold]")
            rows = [
                (output.plain(category), str(len(outcomes)), *_values(means(outcomes)))
                for category, outcomes in categories.items()
            ]
            _print_metrics(("category", "n", *found.metrics), rows)
    out.print(
        f"[bold]{output.plain(run.name)}[/bold]: {run.dataset.queries:,} queries over"
        f" {run.dataset.documents:,} documents in {run.collection['chunks']:,} chunks,"
        f" {output.plain(run.collection['model'])}; collection"
        f" {output.plain(run.collection['name'])}{_moments(run)}",
        soft_wrap=True,
    )
    rows = [
        (mode, *_values(found.metrics), f"{found.milliseconds.median:.1f}")
        for mode, found in run.modes.items()
    ]
    names = next(iter(run.modes.values())).metrics
    _print_metrics(("mode", *names, "median ms"), rows)
    for mode, found in run.modes.items():
        _show_negatives(mode, found)


def show_comparison(comparison: Comparison, *, most: int, as_json: bool) -> None:
    """Print the differences and the queries that changed most."""
    if as_json:
        output.print_json(comparison.as_json(most=most))
        return
    out = output.stdout()
    out.print(f"A: [bold]{output.plain(comparison.a)}[/bold]", soft_wrap=True)
    out.print(f"B: [bold]{output.plain(comparison.b)}[/bold]", soft_wrap=True)
    out.print("low, high: 95 % interval of the difference; * p < .05")
    _print_differences("metric", comparison.metrics)
    if comparison.categories:
        out.print(f"[bold]{comparison.metric} by category[/bold]")
        _print_differences("category", comparison.categories)
    _print_changes(f"gained {comparison.metric}", comparison.gained, most)
    _print_changes(f"lost {comparison.metric}", comparison.lost, most)


def _warn(run: Run) -> None:
    described = run.dataset
    if described.blank:
        output.warn(f"{described.blank} documents have no text and cannot be found")
    if described.unjudged:
        output.warn(f"{described.unjudged} queries have no relevant document and were skipped")
    for failure in run.indexing.failed:
        output.warn(f"document {failure['source']} could not be indexed: {failure['error']}")
    for mode, found in run.modes.items():
        outcomes = (*found.queries.values(), *found.negatives.values())
        for text, count in Counter(text for each in outcomes for text in each.warnings).items():
            output.warn(f"{mode}, {count} queries: {text}")


def _moments(run: Run) -> str:
    """Return the reference dates of the queries as text; empty if there are none."""
    told = [f"as of {output.plain(run.options['asOf'])}"] if "asOf" in run.options else []
    if run.dataset.dated:
        told.append(f"{run.dataset.dated:,} queries with their own date")
    return f"; {', '.join(told)}" if told else ""


def _show_negatives(mode: str, found: ModeRun) -> None:
    if found.negatives:
        scores = top_scores(found)
        output.stdout().print(
            f"{mode}: {len(found.negatives)} queries without an answer; score of the first hit:"
            f" median {scores['unanswered']:.3f}, highest {scores['unansweredMax']:.3f};"
            f" with an answer: median {scores['answered']:.3f}",
            soft_wrap=True,
        )


def _print_differences(kind: str, differences: Mapping[str, Difference]) -> None:
    rows = [
        (
            output.plain(name),
            str(each.queries),
            _short(each.a),
            _short(each.b),
            _short(each.difference, "+"),
            _short(each.low, "+"),
            _short(each.high, "+"),
            _probability(each.p) + ("*" if each.significant else " "),
            f"+{each.gained} -{each.lost}",
        )
        for name, each in differences.items()
    ]
    _print_metrics((kind, "n", "A", "B", "B - A", "low", "high", "p ", "changed"), rows)


def _print_changes(title: str, changes: Sequence[Change], most: int) -> None:
    if not changes or not most:
        return
    output.stdout().print(f"[bold]{title}[/bold]: {len(changes)} queries, largest change first")
    rows = [
        (
            output.plain(change.query),
            output.plain(change.category or ""),
            _short(change.a),
            _short(change.b),
            output.plain(change.text[:_LONGEST_TEXT]),
        )
        for change in changes[:most]
    ]
    _print_metrics(("query", "category", "A", "B", "text"), rows)


def _print_metrics(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without column rules, so that it fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        words = column in _WORDS
        table.add_column(
            column.replace("@", "\n@"),
            justify="left" if words else "right",
            no_wrap=not words,  # a narrow terminal must not cut numbers
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    output.stdout().print(table, "")


def _values(metrics: Mapping[str, float]) -> list[str]:
    return [_short(value) for value in metrics.values()]


def _short(value: float, sign: str = "") -> str:
    """Return a number with three decimals and without the leading zero."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1)


def _probability(p: float) -> str:
    return "<.001" if p < _SMALLEST else _short(p)
