"""`eval`: evaluate the search on a judged set, and compare two evaluations."""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ability_search.cli import output
from ability_search.cli.app import DefaultGroup, app, command, new_group
from ability_search.cli.client import LONG_SECONDS, BrokerOption, JsonOption, TimeoutOption, given
from ability_search.cli.evaluated import run_file, show_comparison, show_run
from ability_search.cli.evaluating import Wanted, measured
from ability_search.cli.kinds import KindsByOption, KindsOption, kinds_fields
from ability_search.cli.local_stack import any_client
from ability_search.cli.selecting import collection_name
from ability_search.cli.served import missing_modules
from ability_search.errors import ConfigurationError
from ability_search.evaluation.judged_sets import read_dataset
from ability_search.evaluation.runs import Run, read_run, write_run
from ability_search.filters.operands import instants
from ability_search.tools.inputs import QueryInput
from kadi_client.tools import validation_text

INSTALL_EVAL = "pip install 'ability-search[eval]'"
METRIC_MODULES = ("ir_measures", "pytrec_eval", "scipy")
PLOT_MODULES = ("matplotlib",)

_OURS = ("collection", "query", "mode", "limit", "offset", "asOf")
"""Query fields that `eval` sets itself."""


class Mode(StrEnum):
    """The values of `--mode`."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


group = new_group(
    "Evaluate the ranking on a judged set (`eval DIR`), or compare two runs.",
    cls=DefaultGroup,
)
app.add_typer(group, name="eval")

PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Write a plot: .png, .svg or .pdf."),
]


@command(group, "run")
def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Judged set in BEIR layout.")],
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Search mode, repeatable.  [default: all three]")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Documents ranked per query.")] = 100,
    options: Annotated[
        str, typer.Option(metavar="JSON", help="Additional fields of search-query.")
    ] = "{}",
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Reference date of queries without one.  [default: now]"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run.  [default: the directory's name]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Save the run to a .json file or a directory."
        ),
    ] = None,
    plot: PlotOption = None,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Collection to index into.  [default: named by its hash]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    chunk_strategy: Annotated[str | None, typer.Option(help="Chunking strategy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per chunk.")] = None,
    language: Annotated[str | None, typer.Option(help="Language of the keyword search.")] = None,
    kinds: KindsOption = None,
    kinds_by: KindsByOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the collection and index the corpus again.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=16, help="Concurrent queries.")] = 2,
    up: Annotated[
        bool, typer.Option("--up", help="Start a separate stack even if one is running.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Data of that stack.  [default: eval in cache_dir]"),
    ] = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the ranking on a judged set: nDCG, recall, MRR, hits, latency.

    DIR contains corpus.jsonl, queries.jsonl and qrels.tsv (or qrels/test.tsv). The
    corpus is indexed and searched through the tools on the network; if no stack is
    running, a temporary one is started. The index is kept and reused as long as
    the texts and the indexing settings stay the same.

    Example:
        ability-search eval data/cranfield --output runs --plot cranfield.png
        ability-search eval data/notes --mode hybrid --options '{"fusion": {"method": "rrf"}}'
        ability-search eval data/notes --as-of 2026-03-25 --name march --output runs
        SEARCH_CANDIDATES=100 ability-search eval data/notes --up --name deep --output runs
    """
    _require(plot)
    if fresh and collection:
        raise typer.BadParameter(
            "not allowed with --collection, which may hold other documents", param_hint="--fresh"
        )
    wanted = Wanted(
        name=name or collection_name(directory),
        modes=[each.value for each in mode or Mode],
        limit=limit,
        options={**given(model=model, asOf=_moment(as_of)), **_query_fields(options)},
        collection=collection,
        recipe=given(
            model=model, chunkStrategy=chunk_strategy, maxTokens=max_tokens, language=language
        )
        | kinds_fields(kinds, kinds_by),
        fresh=fresh,
        concurrency=concurrency,
        timeout=timeout,
        hidden=as_json,
    )
    dataset = read_dataset(directory)

    async def work() -> Run:
        own = up or data_dir is not None
        async with any_client(broker, data_dir=data_dir, temporary=own) as client:
            return await measured(client, dataset, wanted)

    found = asyncio.run(work())
    show_run(found, as_json=as_json)
    if out:
        write_run(found, file := run_file(out, found.name))
        _tell(file)
    if plot:
        from ability_search.evaluation.plots import run_figure, save

        save(run_figure(found), plot)
        _tell(plot)


@command(group, "compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Baseline run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Run to compare with the baseline.")],
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="Mode, or MODE:MODE for A and B.  [default: hybrid if in both]"
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric for categories and queries.")] = "nDCG@10",
    queries: Annotated[
        int, typer.Option(min=0, help="Number of most improved and most worsened queries to list.")
    ] = 5,
    plot: PlotOption = None,
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
    _require(plot)
    from ability_search.evaluation.comparison import compare as compare_runs

    first, second = read_run(a), read_run(b)
    mode_a, mode_b = _modes(mode, first, second)
    found = compare_runs(first, second, mode_a=mode_a, mode_b=mode_b, metric=metric)
    show_comparison(found, most=queries, as_json=as_json)
    if plot:
        from ability_search.evaluation.plots import comparison_figure, save

        save(comparison_figure(found), plot)
        _tell(plot)


def _require(plot: Path | None) -> None:
    """Check that the required extras are installed and that the plot format is supported."""
    missing = missing_modules(METRIC_MODULES + (PLOT_MODULES if plot else ()))
    if missing:
        raise ConfigurationError(
            f"the extra 'eval' is not installed: {', '.join(missing)} missing",
            hint=f"Run: {INSTALL_EVAL}",
        )
    if plot:
        from ability_search.evaluation.plots import check_suffix

        check_suffix(plot)


def _tell(file: Path) -> None:
    output.stderr().print(f"written: {output.plain(file)}", soft_wrap=True)


def _moment(text: str | None) -> str | None:
    """Return a date or an instant, validated now rather than after indexing."""
    if text is not None:
        instants("--as-of", text)
    return text


def _query_fields(text: str) -> dict[str, Any]:
    """Return the additional query fields, validated now rather than after indexing."""
    try:
        fields = json.loads(text)
    except ValueError as exc:
        raise typer.BadParameter(f"not JSON: {exc}", param_hint="--options") from exc
    if not isinstance(fields, dict):
        raise typer.BadParameter("expected a JSON object", param_hint="--options")
    if ours := sorted(fields.keys() & set(_OURS)):
        raise typer.BadParameter(f"{', '.join(ours)}: set by `eval` itself", param_hint="--options")
    try:
        QueryInput.model_validate({"collection": "any", "query": "any", **fields})
    except ValidationError as exc:
        raise typer.BadParameter(validation_text(exc), param_hint="--options") from exc
    return fields


def _modes(wanted: str | None, a: Run, b: Run) -> tuple[str, str]:
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
