"""A migration with the options of the command: plan it, perform it, delete the old data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import httpx

from ability_search.errors import (
    ConfigurationError,
    EarlierLayout,
    EmbeddingUnavailable,
    InvalidInput,
    NotFound,
)
from ability_search.extensions.artifacts.artifact_service import ShowProgress
from ability_search.extensions.artifacts.importer import Importer
from ability_search.extensions.localstack.served_models import served_names
from ability_search.extensions.migration.legacy_statements import ASIDE_TYPE, LEGACY_TYPE, LegacySql
from ability_search.extensions.migration.migration import Migration
from ability_search.extensions.migration.survey import OldCollection, State, Survey
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.tools.calls import Services
from kadi_client import Connection
from kadi_client.addresses import route_address


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """The options of a migration."""

    database: str | None
    collections: Sequence[str]
    prefix: str
    model: str | None
    embed: bool
    drop_old: bool


@dataclass(frozen=True, slots=True)
class MigrationRun:
    """A migration with its options."""

    migration: Migration
    options: MigrationOptions
    database: str
    """Database of the earlier ability."""
    into: str
    """Database of this ability."""
    progress: ShowProgress
    """Shows the progress of a named operation during a block."""
    moved: Callable[[OldCollection], None]
    """Called after each migrated collection."""

    async def plan(self) -> Survey:
        """Survey the old data.

        Raises:
            NotFound: if there is no data of the earlier ability, or a named collection is missing.
        """
        with self.progress(self.database) as report:
            found = await self.migration.survey(
                report,
                prefix=self.options.prefix,
                embed_missing=self.options.embed,
                wanted=self.options.collections,
            )
        if found is None:
            raise NotFound(
                "index of the earlier ability in a database",
                self.database,
                hint="Set the database of the earlier ability with --from.",
            )
        known = {each.name for each in found.collections}
        for name in self.options.collections:
            if name not in known:
                raise NotFound("collection of the earlier ability", name)
        return found

    def check_droppable(self, survey: Survey) -> None:
        """Check that all collections were migrated.

        Raises:
            InvalidInput: if one was not.
        """
        left = [
            each.name
            for each in survey.collections
            if each.state is not State.MOVED and each.chunks
        ]
        if left:
            raise InvalidInput(
                "--drop-old",
                f"not migrated: {', '.join(left)}",
                hint="Run `ability-search migrate` first.",
            )

    async def perform(self) -> Survey:
        """Migrate, or delete the old data; raises as :meth:`plan` and :meth:`check_droppable`.

        A collection is left, with the reason, if its model fails.
        """
        if self.options.drop_old:
            survey = await self.plan()
            self.check_droppable(survey)
            await self.migration.drop(survey)
            return survey
        with self.progress(self.database) as report:
            await self.migration.set_aside(report)
        survey = await self.plan()
        for each in survey.collections:
            if each.state is State.TO_MOVE:
                try:
                    with self.progress(each.becomes) as report:
                        await self.migration.move(survey, each, report)
                except EmbeddingUnavailable as exc:  # its model; others may have another one
                    each.state, each.reason = State.REFUSED, str(exc)
                else:
                    self.moved(each)
        return survey

    @property
    def kept_type(self) -> str:
        """Return the type that holds the old data after the migration."""
        return ASIDE_TYPE if self.database == self.into else LEGACY_TYPE


def migration_run(
    services: Services,
    connection: Connection,
    options: MigrationOptions,
    *,
    progress: ShowProgress,
    moved: Callable[[OldCollection], None],
) -> MigrationRun:
    """Return a migration from the database of the earlier ability.

    Args:
        services: The services of a worker.
        connection: Their connection.
        options: The options of the migration.
        progress: Shows the progress to the user.
        moved: Called after each migrated collection.
    """
    settings = services.ports.settings
    into = settings.database.name
    database = options.database or into
    scripts = BrokerScripts(connection.invoke, database=database, timeout=settings.database.timeout)
    migration = Migration(
        LegacySql(scripts),
        services.ports,
        Importer(services.ports, services.maintenance, services.generations),
        in_place=database == into,
        served=partial(_served_models, services),
        model=options.model,
    )
    return MigrationRun(migration, options, database, into, progress, moved)


async def _served_models(services: Services) -> set[str]:
    """Return the names of the models that can be listed: in use, of the API, and local ones."""
    ports = services.ports
    found: set[str] = set()
    with suppress(EarlierLayout):
        found |= {each.model for each in await ports.registry.all()}
    embedding = ports.settings.embedding
    if embedding.transport == "broker":
        with suppress(ConfigurationError):
            found |= served_names(ports.settings)
    elif embedding.api_url is not None:
        key = embedding.api_key
        headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        address = route_address(embedding.api_url.get_secret_value(), "models")
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            with suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
                answer = (await client.get(address)).raise_for_status().json()
                found.update(str(model["id"]) for model in answer["data"])
    return found
