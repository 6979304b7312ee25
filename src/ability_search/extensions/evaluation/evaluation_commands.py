"""`eval`: evaluate the search on a judged set, and compare two evaluations."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.client.tool_client import Advance, ToolClient
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import DefaultGroup, app, command, new_group
from ability_search.extensions.cli.clients import (
    CLIENT_NAME,
    choose_target,
    client_settings,
    new_client,
    progress_bar,
)
from ability_search.extensions.cli.extras import require_extra
from ability_search.extensions.cli.parameters import BrokerOption, JsonOption, tool_fields
from ability_search.extensions.evaluation.evaluation_options import EvaluationOptions, Mode
from ability_search.extensions.evaluation.judged_sets import read_dataset
from ability_search.extensions.evaluation.runs import (
    EvaluationRun,
    means,
    read_run,
    summary,
    top_scores,
    write_run,
)
from ability_search.index.index_fields import RebuildFields
from kadi_client import NotConnected

if TYPE_CHECKING:
    from ability_search.extensions.evaluation.comparison import Comparison, Difference

_UNUSABLE = re.compile(r"[^\w.-]+")
_LONGEST_TEXT = 60
_SMALLEST = 0.0005
"""Probability below which three decimals would show zero."""
_WORDS = ("mode", "category", "metric", "query", "text")
"""Columns of text."""


group = new_group(
    "Evaluate the ranking on a judged set (`eval DIR`), or compare two runs.", cls=DefaultGroup
)
app.add_typer(group, name="eval")


@command(group, "run")
def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Judged set in BEIR layout.")],
    *,
    options: EvaluationOptions,
    indexing: RebuildFields,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Save the run to a .json file or a directory."
        ),
    ] = None,
    up: Annotated[bool, "Start a separate stack even if one is running."] = False,
    data_dir: Annotated[Path | None, "Data of that stack.  [default: eval in cache_dir]"] = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the ranking on a judged set: nDCG, recall, MRR, hits, latency.

    DIR contains corpus.jsonl, queries.jsonl and qrels.tsv (or qrels/test.tsv). The
    corpus is indexed and searched through the tools on the network; if no stack is
    running, a temporary one is started. The index is kept and reused as long as
    the texts and the indexing settings stay the same.

    Example:
        ability-search eval data/cranfield --output runs
        ability-search eval data/notes --mode hybrid --options '{"fusion": {"method": "rrf"}}'
        ability-search eval data/notes --as-of 2026-03-25 --name march --output runs
        SEARCH_CANDIDATES=100 ability-search eval data/notes --up --name deep --output runs
    """
    require_extra("eval")
    from ability_search.extensions.evaluation.evaluator import evaluate

    if options.fresh and options.collection:
        raise typer.BadParameter(
            "not allowed with --collection, which may hold other documents", param_hint="--fresh"
        )
    dataset = read_dataset(directory)

    def progress(title: str, total: int) -> AbstractContextManager[Advance]:
        return progress_bar(title, total=total, hidden=as_json)

    async def work() -> EvaluationRun:
        own = up or data_dir is not None
        async with _any_client(broker, data_dir=data_dir, temporary=own) as client:
            return await evaluate(client, dataset, options, tool_fields(indexing), progress)

    found = asyncio.run(work())
    _show_run(found, as_json=as_json)
    if out:
        file = out
        if out.suffix != ".json" or out.is_dir():
            file = out / f"{_UNUSABLE.sub('-', found.name)}.json"
        write_run(found, file)
        output.stderr().print(f"written: {output.plain(file)}")


@asynccontextmanager
async def _any_client(
    broker: str | None, *, data_dir: Path | None, temporary: bool
) -> AsyncIterator[ToolClient]:
    """Yield a client of the usual target, or else of a temporary stack.

    That is started if ``temporary``, or if no broker is configured, no stack is running and nothing
    listens at the address of the local broker.
    """
    from ability_search.extensions.localstack.supervisor import temporary_stack

    async with AsyncExitStack() as stack:
        client = None
        if not temporary:
            usual = new_client(broker)
            try:
                client = await stack.enter_async_context(usual)
            except NotConnected:
                if not usual.target.assumed:
                    raise
        if client is None:
            settings = client_settings()
            directory = data_dir or settings.files.cache_dir / "eval"
            running = await stack.enter_async_context(temporary_stack(settings, directory))
            target = choose_target(settings, running.url)
            client = ToolClient(settings, target, name=CLIENT_NAME)
            await stack.enter_async_context(client)
            client.target = replace(target, stack=running)
        yield client


@command(group, "compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Baseline run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Run to compare with the baseline.")],
    mode: Annotated[
        str | None, "Mode, or MODE:MODE for A and B.  [default: hybrid if in both]", "MODE"
    ] = None,
    metric: Annotated[str, "Metric for categories and queries."] = "nDCG@10",
    queries: Annotated[
        int, typer.Option(min=0, help="Number of most improved and most worsened queries to list.")
    ] = 5,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs of the same set, query by query.

    Prints for each metric the difference of the means, its 95 % bootstrap interval
    and the p-value of a permutation test. The p-values are not corrected for
    multiple comparisons: of twenty categories, expect one to look significant by
    chance.

    Example:
        ability-search eval compare runs/before.json runs/after.json
        ability-search eval compare runs/notes.json runs/notes.json --mode semantic:hybrid
    """
    require_extra("eval")
    from ability_search.extensions.evaluation.comparison import compare as compare_runs

    first, second = read_run(a), read_run(b)
    mode_a, mode_b = _modes(mode, first, second)
    found = compare_runs(first, second, mode_a=mode_a, mode_b=mode_b, metric=metric)
    if as_json:
        output.print_json(found.as_json(most=queries))
    else:
        _show_comparison(found, most=queries)


def _modes(wanted: str | None, a: EvaluationRun, b: EvaluationRun) -> tuple[str, str]:
    if wanted is not None:
        first, _, second = wanted.partition(":")
        return first, second or first
    shared = [mode.value for mode in reversed(Mode) if mode in a.modes and mode in b.modes]
    if not shared:
        raise typer.BadParameter(
            f"A has {', '.join(a.modes)}, B has {', '.join(b.modes)}: choose one of each",
            param_hint="--mode",
        )
    return shared[0], shared[0]


def _show_run(run: EvaluationRun, *, as_json: bool) -> None:
    """Print the metrics of each mode, and by category if there are categories."""
    _show_warnings(run)
    if as_json:
        output.print_json(summary(run))
        return
    out = output.stdout()
    for mode, found in run.modes.items():
        if categories := found.by_category():
            out.print(f"[bold]{mode}[/bold]")
            rows = [
                (category, str(len(outcomes)), *map(_short, means(outcomes).values()))
                for category, outcomes in categories.items()
            ]
            _print_metrics(("category", "n", *found.metrics), rows)
    queries = f"{run.dataset.queries:,} {'query' if run.dataset.queries == 1 else 'queries'}"
    dates = f"; as of {output.plain(run.options['asOf'])}" if "asOf" in run.options else ""
    if run.dataset.dated:
        dates += f"{',' if dates else ';'} {run.dataset.dated:,} queries with their own date"
    out.print(
        f"[bold]{output.plain(run.name)}[/bold]: {queries} over"
        f" {output.counted(run.dataset.documents, 'document')} in"
        f" {output.counted(run.collection['chunks'], 'chunk')},"
        f" {output.plain(run.collection['model'])}; collection"
        f" {output.plain(run.collection['name'])}{dates}"
    )
    rows = [
        (mode, *map(_short, found.metrics.values()), f"{found.milliseconds.median:.1f}")
        for mode, found in run.modes.items()
    ]
    names = next(iter(run.modes.values())).metrics
    _print_metrics(("mode", *names, "median ms"), rows)
    for mode, found in run.modes.items():
        if found.negatives:
            scores = top_scores(found)
            out.print(
                f"{mode}: {len(found.negatives)} queries without an answer; score of the first hit:"
                f" median {scores['unanswered']:.3f}, highest {scores['unansweredMax']:.3f};"
                f" with an answer: median {scores['answered']:.3f}"
            )


def _show_warnings(run: EvaluationRun) -> None:
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


def _show_comparison(comparison: Comparison, *, most: int) -> None:
    """Print the differences and the queries that changed most."""
    out, metric = output.stdout(), comparison.metric
    out.print(f"A: [bold]{output.plain(comparison.a)}[/bold]")
    out.print(f"B: [bold]{output.plain(comparison.b)}[/bold]")
    out.print("low, high: 95 % interval of the difference; * p < .05")
    _print_differences("metric", comparison.metrics)
    if comparison.categories:
        out.print(f"[bold]{metric} by category[/bold]")
        _print_differences("category", comparison.categories)
    for title, changes in (("gained", comparison.gained), ("lost", comparison.lost)):
        if changes and most:
            count = f"{len(changes)} queries, largest change first"
            out.print(f"[bold]{title} {metric}[/bold]: {count}")
            rows = [
                (c.query, c.category or "", _short(c.a), _short(c.b), c.text[:_LONGEST_TEXT])
                for c in changes[:most]
            ]
            _print_metrics(("query", "category", "A", "B", "text"), rows)


def _print_differences(kind: str, differences: Mapping[str, Difference]) -> None:
    rows = [
        (
            name,
            str(each.queries),
            _short(each.a),
            _short(each.b),
            *(_short(value, "+") for value in (each.difference, each.low, each.high)),
            ("<.001" if each.p < _SMALLEST else _short(each.p))
            + ("*" if each.significant else " "),
            f"+{each.gained} -{each.lost}",
        )
        for name, each in differences.items()
    ]
    _print_metrics((kind, "n", "A", "B", "B - A", "low", "high", "p ", "changed"), rows)


def _print_metrics(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    output.print_table([column.replace("@", "\n@") for column in columns], rows, words=_WORDS)
    output.stdout().print()


def _short(value: float, sign: str = "") -> str:
    """Return a number with three decimals and without the leading zero."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1)
