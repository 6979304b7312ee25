"""Migration of the earlier ability's data: survey, set aside, move, drop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice

import httpx

from ability_search import errors
from ability_search.documents import Vector
from ability_search.extensions.artifacts.artifact_service import ShowProgress
from ability_search.extensions.artifacts.importer import Importer
from ability_search.extensions.localstack.served_models import served_names
from ability_search.extensions.migration.legacy_data import (
    ASIDE_TYPE,
    LEGACY_TYPE,
    LegacyArtifact,
    LegacyStore,
)
from ability_search.extensions.migration.survey import (
    MigrationOptions,
    OldCollection,
    State,
    Survey,
)
from ability_search.index.index_ports import IndexPorts
from ability_search.index.partial_vectors import every_vector
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.pages import count
from ability_search.store.values import Count, Sources
from ability_search.tools.calls import Services
from kadi_client import Connection
from kadi_client.addresses import route_address

log = logging.getLogger(__name__)

_PAGE = 200
"""Chunks read at a time."""
_COPIED = 500
"""Chunks copied in one transaction."""
_SOURCES = 500
"""Sources looked up at a time."""


class Migration:
    """Migrates the data of the earlier ability, which stays until it is dropped.

    Args:
        services: The services of a worker, with the store to migrate to.
        connection: Their connection.
        options: The options.
        progress: Shows the progress of a named operation during a block.
    """

    def __init__(
        self,
        services: Services,
        connection: Connection,
        options: MigrationOptions,
        *,
        progress: ShowProgress,
    ) -> None:
        settings = services.ports.settings
        self.options = options
        self.into = settings.database.name
        """Database of this ability."""
        self.database = options.database or self.into
        """Database of the earlier ability."""
        self._old = LegacyStore(
            BrokerScripts(
                connection.invoke, database=self.database, timeout=settings.database.timeout
            )
        )
        self._ports = services.ports
        self._importer = Importer(services)
        self._progress = progress

    @property
    def kept_type(self) -> str:
        """Return the type that holds the old data after the migration."""
        return ASIDE_TYPE if self.database == self.into else LEGACY_TYPE

    async def plan(self) -> Survey:
        """Read everything; nothing is changed.

        Raises:
            NotFound: if there is no data of the earlier ability, or a named collection is missing.
            DatabaseUnavailable: if the database did not answer.
            EmbeddingUnavailable: if chunks need an embedding and the model did not answer.
        """
        chunk_type = await self._old.chunk_type()
        if chunk_type is None:
            raise errors.NotFound(
                "index of the earlier ability in a database",
                self.database,
                hint="Set the database of the earlier ability with --from.",
            )
        survey = Survey(chunk_type)
        with self._progress(self.database) as report:
            total, done = (await self._old.totals(chunk_type))["n"], 0
            async for rids in self._old.places(chunk_type, most=_PAGE):
                rows = await self._old.rows(chunk_type, rids)
                await asyncio.to_thread(survey.add, rows)
                done += len(rows)
                await report(done, total, "reading")
            await asyncio.to_thread(survey.finish, self.options)
            for old in survey.collections:
                await self._check_name(survey, old)
            await self._choose_models(survey)
        known = {each.name for each in survey.collections}
        for name in self.options.collection or ():
            if name not in known:
                raise errors.NotFound("collection of the earlier ability", name)
        return survey

    async def perform(self, moved: Callable[[OldCollection], None]) -> Survey:
        """Migrate all collections; each is visible once it is complete.

        A collection is left, with the reason, if its model fails. If this is interrupted, calling
        again continues.

        Args:
            moved: Called after each migrated collection.

        Raises:
            NotFound: as from :meth:`plan`.
            InvalidInput: if a collection of a new name was created meanwhile.
            DatabaseUnavailable: if the database did not answer, or not all was copied.
        """
        if self.database == self.into:
            await self._set_aside()
        survey = await self.plan()
        for old in survey.collections:
            if old.state is State.TO_MOVE:
                try:
                    with self._progress(old.becomes) as report:
                        moving = LegacyArtifact(self._old, survey, old, self._ports)
                        await self._importer.import_artifact(moving, old.becomes, report)
                except errors.EmbeddingUnavailable as exc:  # its model; others may have another one
                    old.state, old.reason = State.REFUSED, str(exc)
                else:
                    old.state = State.MOVED
                    moved(old)
        return survey

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
            raise errors.InvalidInput(
                "--drop-old",
                f"not migrated: {', '.join(left)}",
                hint="Run `ability-search migrate` first.",
            )

    async def drop(self) -> Survey:
        """Drop the data of the earlier ability.

        Raises:
            NotFound: as from :meth:`plan`.
            InvalidInput: as from :meth:`check_droppable`.
            DatabaseUnavailable: if the database did not answer.
        """
        survey = await self.plan()
        self.check_droppable(survey)
        await self._old.drop(survey.chunk_type)
        return survey

    async def _set_aside(self) -> None:
        """Make room for today's layout if the chunks are in its way.

        They are copied to a type of another name, compared, and only then dropped. If this is
        interrupted, at least one of the two is complete, and calling again continues. Record ids
        of an earlier survey are invalid afterwards.
        """
        if await self._old.chunk_type() != LEGACY_TYPE:
            return
        total, done = (await self._old.totals(LEGACY_TYPE))["n"], 0
        await self._old.create_aside()
        with self._progress(self.database) as report:
            async for rids in self._old.places(LEGACY_TYPE, most=_COPIED):
                await self._old.copy_aside(rids)
                done += len(rids)
                await report(done, total, "setting aside")
        there, copied = [await self._old.totals(each) for each in (LEGACY_TYPE, ASIDE_TYPE)]
        if there != copied:
            raise errors.DatabaseUnavailable(
                f"{ASIDE_TYPE} does not hold the same {there['n']} chunks as {LEGACY_TYPE}:"
                " one of them was written to",
                hint="Stop the earlier ability, drop the outdated type, and call again.",
            )
        await self._old.make_room()
        log.info("set %d chunks of the earlier ability aside as %s", done, ASIDE_TYPE)

    async def _check_name(self, survey: Survey, old: OldCollection) -> None:
        """Set the state of a collection: to move, moved, or its name is taken."""
        if not old.chunks:
            old.state, old.reason = State.REFUSED, "none of its chunks can be migrated"
            return
        try:
            live = await self._ports.registry.reload(old.becomes)
        except errors.EarlierLayout:
            return
        if live is None:
            return
        missing = 0
        sources = (source for source, _ in survey.sources_of(old))
        while names := list(islice(sources, _SOURCES)):
            (known,) = await count(self._ports.store, Count(Sources(names), live))
            missing += len(names) - known.groups[None][0]
        old.state = State.TAKEN if missing else State.MOVED
        if missing:
            old.reason = f"a collection {old.becomes!r} exists and lacks {missing} of its sources"

    async def _choose_models(self, survey: Survey) -> None:
        """Choose the model of each collection by embedding some of its texts again."""
        due = [old for old in survey.collections if old.state is State.TO_MOVE]
        texts = [text for old in due for text in old.probes()]
        if not texts:
            return
        named = self.options.model
        configured = self._ports.settings.embedding.model
        models = [named] if named else [configured, *sorted(await served_models(self._ports))]
        answers: dict[str, tuple[dict[str, Vector], set[str]]] = {}
        failures: list[str] = []
        for model in dict.fromkeys(models):
            try:
                vectors, refused = await every_vector(partial(self._ports.embed, model), texts)
            except errors.EmbeddingUnavailable as exc:
                failures.append(str(exc))
            else:
                by_text = dict(zip(texts, vectors, strict=True))
                answers[model] = by_text, {texts[place] for place in refused}
        if not answers:
            if self.options.embed:
                raise errors.EmbeddingUnavailable(f"no model answered: {failures[0]}")
            survey.warnings.append(f"no model answered: {failures[0]}")
        for old in due:
            probes = old.probes()
            offered = {
                model: {text: by_text[text] for text in set(probes) - refused or probes}
                for model, (by_text, refused) in answers.items()
            }
            if warning := old.choose(offered, named=named):
                survey.warnings.append(warning)


async def served_models(ports: IndexPorts) -> set[str]:
    """Return the names of the models that can be listed: in use, of the API, and local ones."""
    found: set[str] = set()
    with suppress(errors.EarlierLayout):
        found |= {each.model for each in await ports.registry.all()}
    embedding = ports.settings.embedding
    if embedding.transport == "broker":
        with suppress(errors.ConfigurationError):
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
