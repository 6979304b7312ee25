"""Migrating from the command line, with the services of a worker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ability_search.cli import output
from ability_search.cli.progress import progress_bar
from ability_search.cli.transferring import importing_of, reporting, services_and_connection
from ability_search.errors import InvalidInput, NotFound
from ability_search.indexing import IndexOptions
from ability_search.migration import Migration, State, Survey
from ability_search.migration.moving import Way
from ability_search.remote import BrokerStore
from ability_search.statements import ASIDE_TYPE, LEGACY_TYPE
from ability_search.worker import open_embedder, token_counter

_ALIKE = 0.9
"""Cosine below which the same model did not make two embeddings of a text."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants to be migrated, and how."""

    database: str | None
    collections: Sequence[str]
    prefix: str
    model: str | None
    embed: bool
    drop_old: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A migration and what it was asked for."""

    migration: Migration
    wishes: Wishes
    database: str
    into: str
    hidden: bool

    async def survey(self) -> Survey:
        """What there is.

        Raises:
            NotFound: if there is nothing of the earlier ability, or not a collection named.
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
                hint="Name the database that it wrote to with --from.",
            )
        known = {each.name for each in found.collections}
        for name in self.wishes.collections:
            if name not in known:
                raise NotFound("collection of the earlier ability", name)
        return found

    async def set_aside(self) -> None:
        """Make room, where it is needed."""
        with progress_bar(self.database, total=None, hidden=self.hidden) as advance:
            await self.migration.set_aside(reporting(advance))

    async def move(self, survey: Survey) -> None:
        """Move what is to be moved."""
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
    """What would be done; it is shown unless ``quiet``.

    Raises:
        NotFound: if there is nothing of the earlier ability, or not a collection named.
        InvalidInput: if its data is to be dropped and not all of it was moved.
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
    """Do what the user wants; raises as :func:`planned`."""
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
    """A migration over the broker that a client uses; raises as :func:`services_here`."""
    async with services_and_connection(broker) as (services, connection):
        settings = services.settings
        into = settings.database.name
        database = wishes.database or into
        async with open_embedder(settings, connection.invoke) as embedder:
            count, counter = token_counter(settings)
            migration = Migration(
                BrokerStore(
                    connection.invoke, database=database, timeout=settings.database.timeout
                ),
                services.store,
                in_place=database == into,
                catalogue=services.catalogue,
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
    """The plan, for programs."""
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
    """What the user should know before anything is done."""
    found = [survey.warning] if survey.warning else []
    found += [
        f"{each.name!r} does not seem to be embedded with {survey.model!r}: its embeddings and"
        f" those of that model have a cosine of {each.similarity:.2f}"
        for each in survey.collections
        if each.similarity is not None and each.similarity < _ALIKE
    ]
    return found


def show(run: Run, survey: Survey) -> None:
    """Print the plan."""
    where = "in place" if run.database == run.into else f"into {run.into}"
    output.stdout().print(
        f"{output.counted(survey.rows, 'chunk')} of the earlier ability in"
        f" {output.plain(run.database)}, to be moved {output.plain(where)};"
        f" their embeddings are taken for those of {output.plain(survey.model)}",
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
            f"not all was moved: {', '.join(left)}",
            hint="Run `ability-search migrate` first.",
        )


def question(run: Run, survey: Survey) -> str:
    """What the user is asked before anything is done."""
    if not run.wishes.drop_old:
        return "Move what is to be moved? The earlier ability must not be running."
    lost = survey.unassigned.total() + sum(each.left_out.total() for each in survey.collections)
    also = f", {lost:,} of which were not moved" if lost else ""
    chunks = output.counted(survey.rows, "chunk")
    return f"Drop the {chunks} in {survey.chunk_type} of {run.database}{also}?"


def _ending(run: Run) -> str:
    if run.wishes.drop_old:
        return "dropped what the earlier ability stored"
    kind = ASIDE_TYPE if run.database == run.into else LEGACY_TYPE
    return f"what the earlier ability stored is kept as {kind} in {run.database}, until --drop-old"


def remarks(survey: Survey) -> list[str]:
    """What there is to say of collections."""
    found = []
    for each in survey.collections:
        if each.reason:
            found.append(f"{each.name}: {each.reason}")
        if each.mended:
            found.append(f"{each.name}: chunks that get a new embedding: {each.mended:,}")
        if each.incomplete:
            found.append(
                f"{each.name}: sources that lack chunks, to be indexed again: {each.incomplete:,}"
            )
        found += _left_out(each.name, each.left_out)
    return found + _left_out("in no collection", survey.unassigned)


def _left_out(name: str, reasons: dict[str, int]) -> list[str]:
    return [f"{name}: chunks left out, {reason}: {count:,}" for reason, count in reasons.items()]
