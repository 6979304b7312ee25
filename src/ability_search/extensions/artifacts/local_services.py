"""The services of a worker in this process, over the broker that a client uses."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ability_search.client.tool_client import (
    Target,
    client_identity,
    joined_environ,
    require_shared,
)
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.config.trust import MODEL_APIS, require_trusted
from ability_search.extensions.artifacts.artifact_service import (
    ArtifactService,
    BuildOptions,
    ShowProgress,
    open_artifact,
)
from ability_search.extensions.artifacts.importer import Importable
from ability_search.extensions.artifacts.manifest import ChunksManifest
from ability_search.extensions.cli.trees import Tree
from ability_search.extensions.cli.upload import Outcome, read_documents
from ability_search.network import client_connection
from ability_search.tools.calls import Services
from ability_search.tools.responses import index_result
from ability_search.worker import open_services, token_counter
from kadi_client import Connection


@asynccontextmanager
async def open_local_services(
    settings: Settings, target: Target, *, name: str
) -> AsyncIterator[tuple[Services, Connection]]:
    """Yield the services of a worker in this process, and their connection.

    Args:
        settings: Settings of a client; those of the running stack outrank them.
        target: The broker.
        name: Display name of the connection.

    Raises:
        ConfigurationError: if the settings are invalid, the stack keeps everything in memory, or
            a found file names an API that the user does not trust.
        KadiError: if the broker cannot be reached.
    """
    require_shared(target)
    identity = client_identity(settings, target)
    if target.stack is not None:
        settings = load_settings(joined_environ(settings, os.environ), Path.cwd())
    require_trusted(settings, os.environ, *MODEL_APIS)
    # What reads or writes a whole collection outlasts a restart of the database.
    database = settings.database
    patience = max(database.patience, database.timeout)
    settings = replace(settings, database=database.model_copy(update={"patience": patience}))
    connection = client_connection(
        settings, target.url, target.networks, name=name, identity=identity
    )
    async with open_services(settings, connection, base=Path.cwd()) as services:
        yield services, connection


def artifact_service(
    services: Services, *, progress: ShowProgress, warn: Callable[[str], None]
) -> ArtifactService:
    """Return the artifact service over the services of a worker."""
    return ArtifactService(
        services.ports,
        services.indexing,
        services.sources,
        services.maintenance,
        services.generations,
        progress=progress,
        warn=warn,
    )


def open_artifact_here(directory: Path, settings: Settings) -> Importable:
    """Open an artifact without a connection; raises as :func:`open_artifact`."""
    return open_artifact(directory, settings=settings, counter=token_counter(settings))


async def build_artifact(
    services: Services,
    artifacts: ArtifactService,
    name: str,
    directory: Path,
    chosen: Sequence[Tree],
    options: BuildOptions,
) -> tuple[ChunksManifest, Outcome]:
    """Build an artifact from local files; raises as :meth:`ArtifactService.build`."""
    outcome = Outcome()
    documents = read_documents(chosen, services.ports.settings, outcome)
    async with aclosing(documents):
        built = await artifacts.build(name, directory, documents, options)
    for report in built.reports:
        outcome.add(index_result(report, "").model_dump(mode="json", by_alias=True))
    outcome.removed = built.removed
    return built.manifest, outcome
