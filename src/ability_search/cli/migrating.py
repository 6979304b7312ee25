"""Migration from the command line, with the services of a worker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ability_search.cli import output
from ability_search.cli.progress import progress_bar
from ability_search.cli.transferring import importing_of, reporting, services_and_connection
from ability_search.errors import InvalidInput, NotFound
from ability_search.index.index_calls import IndexOptions
from ability_search.legacy.legacy_import import Way
from ability_search.legacy.migration import Migration
from ability_search.legacy.survey import State, Survey
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.legacy import ASIDE_TYPE, LEGACY_TYPE, LegacySql
from ability_search.worker import open_embedder, token_counter

_ALIKE = 0.9
"""Cosine below which two embeddings of the same text come from different models."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of a migration."""

    database: str | None
    collections: Sequence[str]
    prefix: str
    model: str | None
    embed: bool
    drop_old: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A migration with its options."""

    migration: Migration
    wishes: Wishes
    database: str
    into: str
    hidden: bool

    async def survey(self) -> Survey:
        """Survey the old data.

        Raises:
            NotFound: if there is no data of the earlier ability, or a named collection is missing.
        """
        with progress_bar(self.database, total=None, hidden=self.hidden) as advance:
            found = await self.migration.survey(
                reporting(advance),
                prefix=self.wishes.prefix,
                mending=self.wishes.embed,
                wanted=self.wishes.collections,
            )
        if found is None:
            raise NotFound(
                "index of the earlier ability in a database",
                self.database,
                hint="Set the database of the earlier ability with --from.",
            )
        known = {each.name for each in found.collections}
        for name in self.wishes.collections:
            if name not in known:
                raise NotFound("collection of the earlier ability", name)
        return found

    async def set_aside(self) -> None:
        """Move the old data to another type where it is in the way of the new layout."""
        with progress_bar(self.database, total=None, hidden=self.hidden) as advance:
            await self.migration.set_aside(reporting(advance))

    async def move(self, survey: Survey) -> None:
        """Migrate every collection that is still to be moved."""
        for each in survey.collections:
            if each.state is not State.TO_MOVE:
                continue
            with progress_bar(each.becomes, total=None, hidden=self.hidden) as advance:
                await self.migration.move(survey, each, reporting(advance))
            if not self.hidden:
                output.stdout().print(
                    f"moved [bold]{output.plain(each.becomes)}[/bold]:"
                    f" {output.counted(each.chunks, 'chunk')} of"
                    f" {output.counted(each.sources, 'source')}",
                    soft_wrap=True,
                )


async def planned(broker: str | None, wishes: Wishes, *, quiet: bool) -> tuple[Run, Survey]:
    """Return a migration and its plan; print the plan unless ``quiet``.

    Raises:
        NotFound: if there is no data of the earlier ability, or a named collection is missing.
        InvalidInput: if the old data is to be deleted but not all of it was migrated.
        ConfigurationError, KadiError: as :func:`services_here`.
    """
    async with opened(broker, wishes, hidden=quiet) as run:
        survey = await run.survey()
    if not quiet:
        show(run, survey)
    if wishes.drop_old:
        _check_moved(survey)
    return run, survey


async def performed(broker: str | None, wishes: Wishes, *, quiet: bool) -> tuple[Run, Survey]:
    """Migrate, or delete the old data; raises as :func:`planned`."""
    async with opened(broker, wishes, hidden=quiet) as run:
        if not wishes.drop_old:
            await run.set_aside()
        survey = await run.survey()
        if wishes.drop_old:
            _check_moved(survey)
            await run.migration.drop(survey)
        else:
            await run.move(survey)
    if not quiet:
        for line in remarks(survey):
            output.stdout().print(output.plain(line), soft_wrap=True)
        output.stdout().print(output.plain(_ending(run)), soft_wrap=True)
    return run, survey


@asynccontextmanager
async def opened(broker: str | None, wishes: Wishes, *, hidden: bool) -> AsyncIterator[Run]:
    """Yield a migration over the broker that a client uses; raises as :func:`services_here`."""
    async with services_and_connection(broker) as (services, connection):
        settings = services.settings
        into = settings.database.name
        database = wishes.database or into
        async with open_embedder(settings, connection.invoke) as embedder:
            count, counter = token_counter(settings)
            migration = Migration(
                LegacySql(
                    BrokerScripts(
                        connection.invoke, database=database, timeout=settings.database.timeout
                    )
                ),
                services.store,
                in_place=database == into,
                registry=services.registry,
                importing=importing_of(services),
                embedder=embedder,
                way=Way(
                    model=wishes.model or settings.embedding.model,
                    recipe=services.indexing.recipe(IndexOptions(), None),
                    settings=settings,
                    count=count,
                    counter=counter,
                ),
            )
            yield Run(migration, wishes, database, into, hidden)


def told(run: Run, survey: Survey) -> dict[str, Any]:
    """Return the plan as a JSON object."""
    return {
        "database": run.database,
        "type": survey.chunk_type,
        "into": run.into,
        "model": survey.model,
        "warnings": warnings(survey),
        "collections": [
            {
                "name": each.name,
                "becomes": each.becomes,
                "state": each.state.value,
                "reason": each.reason or None,
                "chunks": each.chunks,
                "sources": each.sources,
                "dimensions": each.dimensions,
                "similarity": None if each.similarity is None else round(each.similarity, 4),
                "embedded": each.mended,
                "incompleteSources": each.incomplete,
                "leftOut": dict(each.left_out),
            }
            for each in survey.collections
        ],
        "leftOut": dict(survey.unassigned),
    }


def warnings(survey: Survey) -> list[str]:
    """Return the warnings to show before the migration."""
    found = [survey.warning] if survey.warning else []
    found += [
        f"{each.name!r} does not seem to be embedded with {survey.model!r}: the cosine between"
        f" its embeddings and those of that model is {each.similarity:.2f}"
        for each in survey.collections
        if each.similarity is not None and each.similarity < _ALIKE
    ]
    return found


def show(run: Run, survey: Survey) -> None:
    """Print the plan."""
    where = "in place" if run.database == run.into else f"into {run.into}"
    output.stdout().print(
        f"{output.counted(survey.rows, 'chunk')} of the earlier ability in"
        f" {output.plain(run.database)}, to be migrated {output.plain(where)};"
        f" assumed embedding model: {output.plain(survey.model)}",
        soft_wrap=True,
    )
    if survey.collections:
        output.print_table(
            ("collection", "becomes", "chunks", "sources", "dimensions", "state"),
            [
                (
                    each.name,
                    each.becomes,
                    each.chunks,
                    each.sources,
                    each.dimensions,
                    each.state.value,
                )
                for each in survey.collections
            ],
        )
    for line in remarks(survey):
        output.stdout().print(output.plain(line), soft_wrap=True)
    for text in warnings(survey):
        output.warn(text)


def _check_moved(survey: Survey) -> None:
    left = [
        each.name for each in survey.collections if each.state is not State.MOVED and each.chunks
    ]
    if left:
        raise InvalidInput(
            "--drop-old",
            f"not migrated: {', '.join(left)}",
            hint="Run `ability-search migrate` first.",
        )


def question(run: Run, survey: Survey) -> str:
    """Return the confirmation question."""
    if not run.wishes.drop_old:
        return "Migrate these collections? The earlier ability must not be running."
    lost = survey.unassigned.total() + sum(each.left_out.total() for each in survey.collections)
    also = f", {lost:,} of which were not migrated" if lost else ""
    chunks = output.counted(survey.rows, "chunk")
    return f"Delete the {chunks} in {survey.chunk_type} of {run.database}{also}?"


def _ending(run: Run) -> str:
    if run.wishes.drop_old:
        return "deleted the data of the earlier ability"
    kind = ASIDE_TYPE if run.database == run.into else LEGACY_TYPE
    return f"the old data is kept as {kind} in {run.database} until --drop-old"


def remarks(survey: Survey) -> list[str]:
    """Return one line for each remark about a collection."""
    found = []
    for each in survey.collections:
        if each.reason:
            found.append(f"{each.name}: {each.reason}")
        if each.mended:
            found.append(f"{each.name}: chunks to embed again: {each.mended:,}")
        if each.incomplete:
            found.append(
                f"{each.name}: incomplete sources, to be indexed again: {each.incomplete:,}"
            )
        found += _left_out(each.name, each.left_out)
    return found + _left_out("without a collection", survey.unassigned)


def _left_out(name: str, reasons: dict[str, int]) -> list[str]:
    return [f"{name}: skipped chunks, {reason}: {count:,}" for reason, count in reasons.items()]
