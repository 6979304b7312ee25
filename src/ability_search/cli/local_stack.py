"""Stacks on this machine: planning one, and temporary ones for a single command."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ability_search.cli import output
from ability_search.cli.client import Client, chosen_target, client_settings, open_client
from ability_search.cli.served import require_installed, served_names
from ability_search.config.schema import Settings
from ability_search.stack.data_directory import RunningStack, hold, is_abandoned, released
from ability_search.stack.supervisor import Plan, Stack
from kadi_client import NotConnected

_ABANDONED_SECONDS = 40.0


def make_plan(
    settings: Settings,
    *,
    data_dir: Path,
    port: int | None,
    models_port: int,
    log_level: str,
    gateway_port: int | None = None,
    metrics_port: int = 0,
    workers: int = 1,
    database: bool = True,
    models: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a stack from the settings; ports as in :class:`Plan`.

    Raises:
        ConfigurationError: if an extra or the weights that its components need are missing.
    """
    models = models and settings.embedding.transport == "broker"
    require_installed(settings, database=database, models=models)
    model = _chosen_model(settings) if models else settings.embedding.model
    return Plan(
        data_dir=data_dir.absolute(),
        url=settings.broker.url.get_secret_value(),
        networks=settings.broker.networks,
        port=port,
        database=database,
        models_port=models_port if models else None,
        gateway_port=gateway_port,
        metrics_port=metrics_port,
        workers=workers,
        model=model,
        log_level=log_level,
        own_tokenizer=_is_own(settings.chunking.tokenizer, "SEARCH_TOKENIZER", model),
        own_max_tokens=_is_own(settings.embedding.max_tokens, "SEARCH_EMBEDDING_MAX_TOKENS", model),
        environ=environ or {},
    )


def _chosen_model(settings: Settings) -> str | None:
    """Return the model set in the environment, or that of config.yml if the stack serves it."""
    if os.environ.get("SEARCH_EMBEDDING_MODEL", "").strip():
        return settings.embedding.model
    model = settings.embedding.model
    return model if model in served_names(settings) else None


def _is_own(value: object, variable: str, model: str | None) -> bool:
    """Return whether a model setting applies to the model that the stack uses."""
    return value is not None and (model is not None or variable in os.environ)


@asynccontextmanager
async def new_stack(plan: Plan) -> AsyncIterator[Stack]:
    """Yield a stack, not yet started, and lock its data directory meanwhile.

    Raises:
        ConfigurationError: if another process has locked the directory.
    """
    if is_abandoned(plan.data_dir):
        output.stderr().print("waiting for the components of a killed stack to exit")
        await released(plan.data_dir, timeout=_ABANDONED_SECONDS)
    with hold(plan.data_dir) as lock:
        yield Stack(plan, lock=lock, tell=output.warn)


@asynccontextmanager
async def any_client(
    broker: str | None, *, data_dir: Path | None, temporary: bool
) -> AsyncIterator[Client]:
    """Yield a client of the usual target, or else of a temporary stack.

    Args:
        broker: As for :func:`find_target`.
        data_dir: Data directory of a temporary stack; ``None`` for one below ``cache_dir``.
        temporary: Always start a temporary stack; otherwise only if no broker is configured, no
            stack is running and nothing listens at the address of the local broker.

    Raises:
        ConfigurationError: if the settings are invalid, or the stack cannot be started.
        KadiError: if the configured broker cannot be reached.
    """
    async with AsyncExitStack() as stack:
        client = None if temporary else await _present(stack, broker)
        if client is None:
            settings = client_settings()
            directory = data_dir or settings.files.cache_dir / "eval"
            running = await stack.enter_async_context(temporary_stack(settings, directory))
            client = await stack.enter_async_context(open_client(running.url))
            client = replace(client, target=replace(client.target, stack=running))
        yield client


async def _present(stack: AsyncExitStack, broker: str | None) -> Client | None:
    """Return a client of the usual target; ``None`` if it is only assumed and not reachable."""
    assumed = chosen_target(client_settings(), broker).assumed
    try:
        return await stack.enter_async_context(open_client(broker))
    except NotConnected:
        if not assumed:
            raise
        return None


@asynccontextmanager
async def temporary_stack(
    settings: Settings, data_dir: Path, *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[RunningStack]:
    """Start a stack on free ports and stop it at the end of the block.

    Args:
        settings: Settings to plan the stack from.
        data_dir: Its data directory.
        environ: Additional environment of its components.

    Raises:
        ConfigurationError: if the stack cannot be started.
    """
    told = "SEARCH_LOG_LEVEL" in os.environ
    plan = make_plan(
        settings,
        data_dir=data_dir,
        port=0,
        models_port=0,
        log_level=settings.logging.level if told else "warning",
        environ=environ,
    )
    async with new_stack(plan) as stack:
        output.stderr().print(f"starting a stack in {output.plain(plan.data_dir)}", soft_wrap=True)
        try:
            yield await stack.start()
        finally:
            await stack.stop()
