"""The migration service: survey, set aside, move, drop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

from ability_search.artifacts.importer import Importing
from ability_search.collection import Collection as Live
from ability_search.documents import Vector
from ability_search.errors import DatabaseUnavailable, EarlierLayout, EmbeddingUnavailable
from ability_search.index.index_calls import Progress, Report
from ability_search.legacy.legacy_import import Moving, Reach, Way
from ability_search.legacy.legacy_pages import OldDatabase
from ability_search.legacy.survey import OldCollection, State, Survey, Surveying
from ability_search.ports import Embedder, Store
from ability_search.store import arcadedb
from ability_search.store.arcadedb import ASIDE_TYPE, LEGACY_TYPE
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE = 200
"""Chunks read at a time."""
_COPIED = 500
"""Chunks set aside in one transaction."""
_SOURCES = 500
"""Sources looked for at a time."""


class Migration:
    """Moves what the earlier ability stored; its own data stays until it is dropped.

    Args:
        old: The database that it wrote to.
        store: The database that is moved to.
        in_place: Whether the two are the same.
        registry: Knows the collections of the latter.
        importing: Writes them.
        embedder: The models.
        way: How chunks are moved.
    """

    def __init__(
        self,
        old: Store,
        store: Store,
        *,
        in_place: bool,
        registry: Registry,
        importing: Importing,
        embedder: Embedder,
        way: Way,
    ) -> None:
        self._old = OldDatabase(old)
        self._store = store
        self._in_place = in_place
        self._registry = registry
        self._importing = importing
        self._embedder = embedder
        self._way = way

    async def survey(
        self,
        report: Report,
        *,
        prefix: str = "",
        mending: bool = False,
        wanted: Collection[str] = (),
    ) -> Survey | None:
        """Read all that there is; nothing is changed.

        Args:
            report: Receives the progress.
            prefix: Of the collections' new names.
            mending: Whether chunks without an embedding that is of use get a new one.
            wanted: Names of collections; all if there are none.

        Returns:
            What there is; ``None`` if the database is none of the earlier ability.

        Raises:
            DatabaseUnavailable: if the database did not answer.
            EmbeddingUnavailable: if embeddings are to be made, and the model did not answer.
        """
        chunk_type = await self._old.chunk_type()
        if chunk_type is None:
            return None
        total, done = await self._old.size(chunk_type), 0
        surveying = Surveying()
        async for rids in self._old.places(chunk_type, most=_PAGE):
            rows = await self._old.rows(chunk_type, rids)
            await asyncio.to_thread(surveying.add, rows)
            done += len(rows)
            await report(Progress(chunk_type, done, total, "reading"))
        survey = surveying.finished(
            chunk_type, model=self._way.model, prefix=prefix, mending=mending, wanted=wanted
        )
        for old in survey.collections:
            await self._check_name(survey, old)
        await self._check_model(survey, mending=mending)
        return survey

    async def set_aside(self, report: Report) -> bool:
        """Make room for the types of today, where the chunks stand in their way.

        They are copied to a type of another name, compared, and dropped only then. Killed at any
        instant it leaves at least one of the two whole; calling again completes it. What was
        surveyed before is in other places then.

        Returns:
            Whether there was anything in the way.

        Raises:
            DatabaseUnavailable: if the database did not answer, or not all was copied.
        """
        if not self._in_place or await self._old.chunk_type() != LEGACY_TYPE:
            return False
        total = await self._old.size(LEGACY_TYPE)
        await self._store.write(*arcadedb.create_aside())
        done = 0
        async for rids in self._old.places(LEGACY_TYPE, most=_COPIED):
            await self._store.write(*arcadedb.set_aside(rids))
            done += len(rids)
            await report(Progress(LEGACY_TYPE, done, total, "setting aside"))
        there, copied = [await self._old.totals(each) for each in (LEGACY_TYPE, ASIDE_TYPE)]
        if there != copied:
            raise DatabaseUnavailable(
                f"{ASIDE_TYPE} does not hold the same {there['n']} chunks as {LEGACY_TYPE}:"
                " somebody writes to it, or has since it was set aside",
                hint="Stop the earlier ability, drop the type that does not count, and call again.",
            )
        await self._store.write(*arcadedb.make_room())
        log.info("set %d chunks of the earlier ability aside as %s", done, ASIDE_TYPE)
        return True

    async def move(self, survey: Survey, old: OldCollection, report: Report) -> None:
        """Make one collection of the earlier ability one of today.

        Nobody sees it before it is complete. Killed at any instant, calling again completes it.

        Raises:
            InvalidInput: if there is a collection of its new name.
            DatabaseUnavailable: if the database did not answer.
            EmbeddingUnavailable: if embeddings are to be made, and the model did not answer.
        """
        reach = self._reach(survey.chunk_type)
        moving = Moving(old, self._way, reach, now=time.time_ns() // 1_000_000)
        await self._importing.import_artifact(moving, old.becomes, report)
        old.state = State.MOVED

    async def drop(self, survey: Survey) -> None:
        """Drop what the earlier ability stored."""
        await self._old.store.write(*arcadedb.drop_legacy(survey.chunk_type))

    def _reach(self, chunk_type: str) -> Reach:
        """The database and the model for another thread."""
        loop = asyncio.get_running_loop()

        def waited(work: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        return Reach(
            rows=lambda rids: waited(self._old.rows(chunk_type, rids)),
            embed=lambda texts: waited(self._embed(texts)),
        )

    async def _embed(self, texts: Sequence[str]) -> Vector:
        embedding = self._way.settings.embedding
        return await self._embedder.embed(
            self._way.model, texts, timeout=embedding.timeout * embedding.attempts
        )

    async def _check_name(self, survey: Survey, old: OldCollection) -> None:
        """See whether the collection is there already, and with all of its sources."""
        if not old.chunks:
            old.state, old.reason = State.REFUSED, "none of its chunks can be moved"
            return
        try:
            live = await self._registry.reload(old.becomes)
        except EarlierLayout:
            return
        if live is None:
            return
        missing = await self._missing(survey, old, live)
        old.state = State.TAKEN if missing else State.MOVED
        if missing:
            old.reason = f"there is a collection {old.becomes!r}, without {missing} of its sources"

    async def _missing(self, survey: Survey, old: OldCollection, live: Live) -> int:
        """Return the number of its sources that the collection of its name lacks."""
        missing = 0
        firsts = old.first_places()
        for start in range(0, len(firsts), _SOURCES):
            names = await self._old.sources(survey.chunk_type, firsts[start : start + _SOURCES])
            answer = await self._store.read(*arcadedb.source_hashes(live.name, live.type, names))
            missing += len(names) - len(answer["sources"])
        return missing

    async def _check_model(self, survey: Survey, *, mending: bool) -> None:
        """Compare some stored embeddings with those that the model gives today."""
        due = [old for old in survey.collections if old.state is State.TO_MOVE]
        texts = [text for old in due for text in old.probes()]
        if not texts:
            return
        try:
            vectors = await self._embed(texts)
        except EmbeddingUnavailable as exc:
            if mending:
                raise
            survey.warning = f"the model could not be asked: {exc}"
            return
        done = 0
        for old in due:
            old.compare(vectors[done : done + len(old.probes())], survey.model)
            done += len(old.probes())
