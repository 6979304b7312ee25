"""`eval`: what the search is worth on a judged set, and whether a change made it better."""

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
from ability_search.evaluation.dataset import read_dataset
from ability_search.evaluation.runs import Run, read_run, write_run
from ability_search.filters import instants
from ability_search.wire.inputs import QueryInput
from kadi_client.tools import validation_text

INSTALL_EVAL = "pip install 'ability-search[eval]'"
METRIC_MODULES = ("ir_measures", "pytrec_eval", "scipy")
PLOT_MODULES = ("matplotlib",)

_OURS = ("collection", "query", "mode", "limit", "offset", "asOf")
"""Fields of a query that `eval` sets itself."""


class Mode(StrEnum):
    """What `--mode` takes."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


group = new_group(
    "Measure the ranking on a judged set (`eval DIR`), compare two measurements.",
    cls=DefaultGroup,
)
app.add_typer(group, name="eval")

PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf."),
]


@command(group, "run")
def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Set in BEIR layout.")],
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Only this mode; may be repeated.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Documents ranked for each query.")
    ] = 100,
    options: Annotated[
        str, typer.Option(metavar="JSON", help="Further fields of search-query.")
    ] = "{}",
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="When queries are asked that do not say so.  [default: now]"
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the run.  [default: the directory's name]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write the run: a .json, a directory."),
    ] = None,
    plot: PlotOption = None,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Collection to index into.  [default: named by its content]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    chunk_strategy: Annotated[str | None, typer.Option(help="How texts are cut.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens in a chunk.")] = None,
    language: Annotated[str | None, typer.Option(help="Language of the keyword search.")] = None,
    kinds: KindsOption = None,
    kinds_by: KindsByOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete and index everything.")] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=16, help="Queries under way at a time.")
    ] = 2,
    up: Annotated[
        bool, typer.Option("--up", help="Start a stack of its own, even if one runs.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Data of such a stack.  [default: eval in cache_dir]"),
    ] = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Measure the ranking on a judged set: nDCG, recall, MRR, hits, latency.

    DIR holds corpus.jsonl, queries.jsonl and qrels.tsv (or qrels/test.tsv). The
    corpus is indexed and searched through the tools of the network; if no stack
    runs, one is started for as long as it takes. What was indexed is kept and
    used again while the texts and the way they are indexed stay the same.

    Example:
        ability-search eval data/cranfield --output runs --plot cranfield.png
        ability-search eval data/notes --mode hybrid --options '{"fusion": {"method": "rrf"}}'
        ability-search eval data/notes --as-of 2026-03-25 --name march --output runs
        SEARCH_CANDIDATES=100 ability-search eval data/notes --up --name deep --output runs
    """
    _require(plot)
    if fresh and collection:
        raise typer.BadParameter(
            "with --collection it would delete what others may have put there", param_hint="--fresh"
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
    a: Annotated[Path, typer.Argument(metavar="A", help="Run to compare with.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Run that should be better.")],
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="Mode, or MODE:MODE of A and B.  [default: hybrid if in both]"
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric of categories and queries.")] = "nDCG@10",
    queries: Annotated[
        int, typer.Option(min=0, help="Most queries listed that gained, and that lost.")
    ] = 5,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs of one set, query by query.

    For each metric: the difference of the means, its 95 % bootstrap interval, and
    the p-value of a permutation test. Categories are many and small: expect one
    of twenty to look significant by chance.

    Example:
        ability-search eval compare runs/before.json runs/after.json
        ability-search eval compare runs/notes.json runs/notes.json --mode semantic:hybrid
    """
    _require(plot)
    from ability_search.evaluation.comparing import compare as compare_runs

    first, second = read_run(a), read_run(b)
    mode_a, mode_b = _modes(mode, first, second)
    found = compare_runs(first, second, mode_a=mode_a, mode_b=mode_b, metric=metric)
    show_comparison(found, most=queries, as_json=as_json)
    if plot:
        from ability_search.evaluation.plots import comparison_figure, save

        save(comparison_figure(found), plot)
        _tell(plot)


def _require(plot: Path | None) -> None:
    """Check that what is needed is installed, and that the picture has a known format."""
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
    """A date or an instant, refused here rather than after the indexing."""
    if text is not None:
        instants("--as-of", text)
    return text


def _query_fields(text: str) -> dict[str, Any]:
    """The further fields of the queries, refused here rather than after the indexing."""
    try:
        fields = json.loads(text)
    except ValueError as exc:
        raise typer.BadParameter(f"not JSON: {exc}", param_hint="--options") from exc
    if not isinstance(fields, dict):
        raise typer.BadParameter("expected a JSON object", param_hint="--options")
    if ours := sorted(fields.keys() & set(_OURS)):
        raise typer.BadParameter(f"{', '.join(ours)}: not to be set", param_hint="--options")
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
            f"A has {', '.join(a.modes)}, B has {', '.join(b.modes)}: name one of each",
            param_hint="--mode",
        )
    return shared[0], shared[0]
