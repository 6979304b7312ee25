"""Migration of the earlier ability's data: survey, set aside, move, drop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Protocol, TypeVar

from ability_search.collection import Collection as Live
from ability_search.documents import Vector
from ability_search.errors import (
    DatabaseUnavailable,
    EarlierLayout,
    EmbeddingUnavailable,
    TextsRefused,
)
from ability_search.extensions.artifacts.importer import Importer
from ability_search.extensions.migration.legacy_import import LegacyArtifact, Reach
from ability_search.extensions.migration.survey import OldCollection, State, Survey, Surveyor
from ability_search.index.index_calls import Progress, Report
from ability_search.index.index_ports import IndexPorts
from ability_search.index.partial_vectors import every_vector

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE = 200
"""Chunks read at a time."""
_COPIED = 500
"""Chunks copied in one transaction."""
_SOURCES = 500
"""Sources looked up at a time."""


class LegacyStore(Protocol):
    """A database of the earlier ability.

    Its rows are as that ability wrote them: any column may be missing or of any type.
    """

    async def chunk_type(self) -> str | None:
        """Return the type that holds the chunks; ``None`` if there is none.

        While they are being copied, it is the original type.
        """

    def in_the_way(self, chunk_type: str) -> bool:
        """Return whether the type has a name that today's layout needs."""

    async def size(self, chunk_type: str) -> int:
        """Return the number of chunks."""

    def places(self, chunk_type: str, *, most: int) -> AsyncIterator[list[str]]:
        """Yield the record ids of the chunks, at most ``most`` at a time."""

    async def rows(self, chunk_type: str, rids: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows by record id, in any order."""

    async def sources(self, chunk_type: str, rids: Sequence[str]) -> list[str]:
        """Return the sources of chunks by record id, in any order."""

    async def create_aside(self) -> str:
        """Create the type for copies if it does not exist; return its name."""

    async def copy_aside(self, rids: Sequence[str]) -> None:
        """Copy chunks by record id; skip those that were copied before."""

    async def totals(self, chunk_type: str) -> Mapping[str, int]:
        """Return the number ``n`` of chunks and the sizes of their texts and embeddings."""

    async def make_room(self) -> None:
        """Drop the original chunks, and create today's type in their place."""

    async def drop(self, chunk_type: str) -> None:
        """Drop the chunks."""


class Migration:
    """Migrates the data of the earlier ability, which stays until it is dropped.

    Args:
        old: The database of the earlier ability.
        ports: The ports and settings of indexing, with the store to migrate to.
        importing: Imports collections.
        in_place: Whether both databases are the same.
        served: Returns the names of the models that may have made the embeddings.
        model: Model of the embeddings; ``None`` to find it among those, by comparing vectors.
    """

    def __init__(
        self,
        old: LegacyStore,
        ports: IndexPorts,
        importing: Importer,
        *,
        in_place: bool,
        served: Callable[[], Awaitable[Collection[str]]],
        model: str | None = None,
    ) -> None:
        self._old = old
        self._ports = ports
        self._importing = importing
        self._in_place = in_place
        self._served = served
        self._model = model

    async def survey(
        self,
        report: Report,
        *,
        prefix: str = "",
        embed_missing: bool = False,
        wanted: Collection[str] = (),
    ) -> Survey | None:
        """Read everything; nothing is changed.

        Args:
            report: Receives the progress.
            prefix: Prefix of the collections' new names.
            embed_missing: Embed chunks that have no usable embedding.
            wanted: Names of collections; empty for all.

        Returns:
            What was found; ``None`` if the database has no data of the earlier ability.

        Raises:
            DatabaseUnavailable: if the database did not answer.
            EmbeddingUnavailable: if chunks need an embedding and the model did not answer.
        """
        chunk_type = await self._old.chunk_type()
        if chunk_type is None:
            return None
        total, done = await self._old.size(chunk_type), 0
        surveying = Surveyor()
        async for rids in self._old.places(chunk_type, most=_PAGE):
            rows = await self._old.rows(chunk_type, rids)
            await asyncio.to_thread(surveying.add, rows)
            done += len(rows)
            await report(Progress(chunk_type, done, total, "reading"))
        survey = surveying.finished(
            chunk_type,
            prefix=prefix,
            embed_missing=embed_missing,
            wanted=wanted,
        )
        for old in survey.collections:
            await self._check_name(survey, old)
        await self._choose_models(survey, embed_missing=embed_missing)
        return survey

    async def set_aside(self, report: Report) -> bool:
        """Make room for today's layout if the chunks are in its way.

        They are copied to a type of another name, compared, and only then dropped. If this is
        interrupted, at least one of the two is complete, and calling again continues. Record ids
        of an earlier survey are invalid afterwards.

        Returns:
            False if nothing was in the way.

        Raises:
            DatabaseUnavailable: if the database did not answer, or not all was copied.
        """
        chunk_type = await self._old.chunk_type() if self._in_place else None
        if chunk_type is None or not self._old.in_the_way(chunk_type):
            return False
        total = await self._old.size(chunk_type)
        aside = await self._old.create_aside()
        done = 0
        async for rids in self._old.places(chunk_type, most=_COPIED):
            await self._old.copy_aside(rids)
            done += len(rids)
            await report(Progress(chunk_type, done, total, "setting aside"))
        there, copied = [await self._old.totals(each) for each in (chunk_type, aside)]
        if there != copied:
            raise DatabaseUnavailable(
                f"{aside} does not hold the same {there['n']} chunks as {chunk_type}:"
                " one of them was written to",
                hint="Stop the earlier ability, drop the outdated type, and call again.",
            )
        await self._old.make_room()
        log.info("set %d chunks of the earlier ability aside as %s", done, aside)
        return True

    async def move(self, survey: Survey, old: OldCollection, report: Report) -> None:
        """Migrate one collection.

        It is visible once it is complete. If this is interrupted, calling again continues.

        Raises:
            InvalidInput: if a collection of its new name exists.
            DatabaseUnavailable: if the database did not answer.
            EmbeddingUnavailable: if chunks need an embedding and the model did not answer.
        """
        reach = self._reach(survey.chunk_type, old.model)
        moving = LegacyArtifact(old, self._ports, old.model, reach)
        await self._importing.import_artifact(moving, old.becomes, report)
        old.state = State.MOVED

    async def drop(self, survey: Survey) -> None:
        """Drop the data of the earlier ability."""
        await self._old.drop(survey.chunk_type)

    def _reach(self, chunk_type: str, model: str) -> Reach:
        """Return the database and the model for another thread."""
        loop = asyncio.get_running_loop()

        def waited(work: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        return Reach(
            rows=lambda rids: waited(self._old.rows(chunk_type, rids)),
            embed=lambda texts: waited(every_vector(partial(self._ports.embed, model), texts)),
        )

    async def _check_name(self, survey: Survey, old: OldCollection) -> None:
        """Set the state of a collection: to move, moved, or its name is taken."""
        if not old.chunks:
            old.state, old.reason = State.REFUSED, "none of its chunks can be migrated"
            return
        try:
            live = await self._ports.registry.reload(old.becomes)
        except EarlierLayout:
            return
        if live is None:
            return
        missing = await self._missing(survey, old, live)
        old.state = State.TAKEN if missing else State.MOVED
        if missing:
            old.reason = f"a collection {old.becomes!r} exists and lacks {missing} of its sources"

    async def _missing(self, survey: Survey, old: OldCollection, live: Live) -> int:
        """Return the number of sources that the collection of the new name lacks."""
        missing = 0
        firsts = old.first_places()
        for start in range(0, len(firsts), _SOURCES):
            names = await self._old.sources(survey.chunk_type, firsts[start : start + _SOURCES])
            missing += len(names) - len((await self._ports.store.content_hashes(live, names)).value)
        return missing

    async def _choose_models(self, survey: Survey, *, embed_missing: bool) -> None:
        """Choose the model of each collection by embedding some of its texts again."""
        due = [old for old in survey.collections if old.state is State.TO_MOVE]
        texts = [text for old in due for text in old.probes()]
        if not texts:
            return
        configured = self._ports.settings.embedding.model
        models = [self._model] if self._model else [configured, *sorted(await self._served())]
        answers: dict[str, tuple[list[Vector], Mapping[int, TextsRefused]]] = {}
        failures: list[str] = []
        for model in dict.fromkeys(models):
            try:
                answers[model] = await every_vector(partial(self._ports.embed, model), texts)
            except EmbeddingUnavailable as exc:
                failures.append(str(exc))
        if not answers:
            if embed_missing:
                raise EmbeddingUnavailable(f"no model answered: {failures[0]}")
            survey.warnings.append(f"no model answered: {failures[0]}")
        done = 0
        for old in due:
            end = done + len(old.probes())
            places = range(done, end)
            offered = {
                name: {
                    place - done: vectors[place]
                    for place in [each for each in places if each not in refused] or places
                }
                for name, (vectors, refused) in answers.items()
            }
            if warning := old.choose(offered, named=self._model):
                survey.warnings.append(warning)
            done = end
