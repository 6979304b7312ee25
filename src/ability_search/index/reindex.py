"""Reindexing: building new generations of collections, as jobs that survive their worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ability_search.collection import Collection, new_collection
from ability_search.documents import Document
from ability_search.errors import Busy, DatabaseUnavailable, NotFound, SearchError, TooLarge
from ability_search.index.generations import Generations, compared_sources
from ability_search.index.index_calls import (
    IndexReport,
    Report,
    configured,
    detected_language,
    recipe_for,
)
from ability_search.index.index_fields import IndexFields, RebuildFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.jobs import Jobs, Publish, Run, new_record
from ability_search.index.maintenance import Maintenance
from ability_search.index.partial_vectors import NEUTRAL
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.preparation import prepare, restored_document
from ability_search.index.sequences import with_preceding
from ability_search.index.stored_sources import StoredSources
from ability_search.index.verification import verify
from ability_search.index.writer import expected_length
from ability_search.retry import growing, retry
from ability_search.store.pages import COUNTED, NAMES, read_all, read_page, source_texts
from ability_search.store.records import REINDEX, Job
from ability_search.store.values import Read, Sources
from kadi_client.backoff import Backoff
from kadi_client.context import incident

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 15.0
"""Maximum seconds between retries while the database or model is unavailable."""
_MOST_LOST = 5
"""Workers in a row that may be lost on a job without progress, since the job may be the cause."""
_TO_END = 1.0
"""Seconds to end cancelled jobs when the worker stops."""
_PART = 64
"""Maximum number of sources restored at a time."""
_SAMPLE = 16
"""Sources from which the average length of chunks is estimated."""
_PASSES = 10
"""Maximum number of passes that catch up with concurrent writes before giving up."""


@dataclass(slots=True, eq=False)
class Reindexer:
    """The reindex service.

    A new generation is built under a separate record, so that it is not visible before it is
    complete, and then replaces the live one in a single update. The job is recorded, and any
    worker can continue a job whose worker is lost: the state of a build is in the database only.

    Args:
        ports: The ports and settings of indexing.
        generations: Switches a collection to a new generation, and drops abandoned ones.
        jobs: The job records.
        indexing: The index service.
        sources: Deletes the sources that the live generation does not have.
        maintenance: Builds the vector graph before the generation goes live.
        publish: Publishes the events of jobs without a waiting caller.
    """

    ports: IndexPorts
    generations: Generations
    jobs: Jobs
    indexing: IndexPipeline
    sources: StoredSources
    maintenance: Maintenance
    publish: Publish
    _runs: dict[str, Run] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False

    @property
    def runs(self) -> Sequence[Run]:
        """The jobs that this worker executes."""
        return tuple(self._runs.values())

    async def start(self, name: str, chosen: RebuildFields, *, job_id: str | None = None) -> Run:
        """Start a job that chunks and embeds the whole collection again.

        An abandoned job with the same options is continued; one with other options is replaced.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if an option is invalid.
            Busy: if a worker is rebuilding the collection.
            EmbeddingUnavailable: if the model is not available.
        """
        if self._closed:
            raise Busy("the worker is shutting down", retry_after=1.0)
        live = await self.ports.registry.get(name, fresh=True)
        options = {name: getattr(chosen, name) for name in RebuildFields.model_fields}
        last = await self.jobs.find(name, REINDEX)
        if last is not None and last.running:
            begun = last.expired and last.options == options
            claimed = await self.jobs.claim(last) if begun else None
            if claimed is not None:
                return self._run(claimed)
            if begun or not last.expired:
                raise _busy(last)
        record = new_record(name)
        built = await self._begin(live, record, IndexFields(**options))
        job = Job(
            id=job_id or secrets.token_hex(8),
            kind=REINDEX,
            collection=name,
            record=record,
            options=options,
            stage="reindexing",
            total=live.sources,
        )
        new = await self.jobs.begin(job, built, last=last)
        if new is None:
            await self.generations.drop(built.type)
            raise Busy(f"another worker is rebuilding {name!r}")
        # The generation of the previous job is now marked to be dropped.
        self.generations.drop_soon()
        return self._run(new)

    async def cancel(self, name: str) -> Job:
        """Cancel the job that rebuilds a collection, in whichever worker it runs.

        Raises:
            NotFound: if no such job is running.
        """
        job = await self.jobs.find(name, REINDEX)
        if job is None or not job.running or not await self.jobs.cancel(job):
            raise NotFound(
                "running reindex of a collection",
                name,
                hint="search-collection-info shows the last job of the collection.",
            )
        self.generations.drop_soon()
        return job

    async def clear(self, name: str) -> int:
        """Replace the generation of a collection by an empty one with the same settings.

        A job that rebuilds the collection is cancelled.

        Returns:
            The number of deleted chunks.

        Raises:
            NotFound: if there is no such collection.
            DatabaseUnavailable: if concurrent writes did not stop.
        """
        await self.ports.registry.get(name)
        for _ in range(_PASSES):
            job = await self.jobs.find(name, REINDEX)
            if job is not None and job.running:
                await self.jobs.cancel(job)
            live = await self.ports.registry.current(name)
            empty = new_collection(
                new_record(name),
                live,
                dimensions=live.dimensions,
                average_length=live.average_length,
                now=self.ports.now(),
            )
            built = await self.ports.registry.create(empty)
            if await self.generations.switch(live, built) is not None:
                return live.chunks
            await self.ports.registry.drop(built)
        raise _kept_changing()

    def cancel_soon(self, run: Run, reason: SearchError) -> None:
        """Cancel a job of this worker without waiting."""
        run.failure = reason
        task = asyncio.create_task(self._cancel(run), name=f"cancel job {run.job.id}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def resume(self) -> None:
        """Continue the jobs that have no worker."""
        for job in await self.jobs.orphaned(REINDEX):
            if self._closed or job.collection in self._runs:
                continue
            claimed = await self.jobs.claim(job)
            if claimed is None:
                continue
            if claimed.lost >= _MOST_LOST:
                log.error("job %s of %s has failed too often, giving up", job.id, job.collection)
                await self.jobs.fail(claimed, _given_up(claimed))
                self.generations.drop_soon()
                continue
            log.info("continuing job %s of %s", job.id, job.collection)
            self._run(claimed)

    async def close(self) -> None:
        """Stop and release the jobs of this worker."""
        self._closed = True
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=_TO_END)
            for task in late:
                task.cancel()
        await asyncio.gather(*(run.release() for run in self._runs.values()))

    def _run(self, job: Job) -> Run:
        run = Run(self.jobs, job, self._work, self.publish)
        self._runs[job.collection] = run
        run.ended.add_done_callback(partial(self._forget, run))
        return run

    def _forget(self, run: Run, ended: asyncio.Task[Job]) -> None:
        if self._runs.get(run.job.collection) is run:
            del self._runs[run.job.collection]
        if not ended.cancelled() and (exc := ended.exception()) is not None:
            log.info("job %s of %s: %s", run.job.id, run.job.collection, exc)

    async def _work(self, run: Run) -> None:
        """Build the generation, with retries, until the job has ended."""
        backoff, waited, best = Backoff(cap=_LONGEST_PAUSE), 0.0, 0
        while (failure := await self._failure(run)) is not None:
            if run.progress.done > best:
                backoff, waited, best = Backoff(cap=_LONGEST_PAUSE), 0.0, run.progress.done
            patient = waited < self.ports.settings.jobs.patience
            try:
                if not (patient and failure.retryable):
                    # If it is refused, another worker has the job.
                    run.failure = failure if await self.jobs.fail(run.job, failure) else None
                    self.generations.drop_soon()
                    return
                run.progress.stage = f"waiting: {failure.code}"
                if not await self.jobs.renew(run.job, run.progress):
                    return
                log.warning("job %s of %s waits: %s", run.job.id, run.job.collection, failure)
                await run.report(run.progress.done, run.progress.total, run.progress.stage)
            except SearchError as exc:
                log.warning("the database is unavailable for job %s: %s", run.job.id, exc)
                if not patient:
                    run.failure = failure
                    return
            pause = backoff.delay(0.0)
            await asyncio.sleep(pause)
            waited += pause

    async def _failure(self, run: Run) -> SearchError | None:
        """Build the generation of a job; return why it failed, if it did."""
        try:
            await self._build(run.job, run.report)
        except SearchError as exc:
            return exc
        except Exception:
            name = incident()
            log.exception("incident %s in job %s", name, run.job.id)
            return SearchError(f"internal error, incident {name}")
        return None

    async def _cancel(self, run: Run) -> None:
        """Cancel a job, retrying until the database responds, so that no worker continues it."""
        pause = growing(_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        await retry(run.cancel, when=_is_known, attempts=None, pause=pause)
        await retry(self.generations.drop_due, when=_is_known, attempts=None, pause=pause)

    # Building a generation

    async def _begin(self, live: Collection, record: str, options: IndexFields) -> Collection:
        """Create an empty generation and return its record, which is not stored yet.

        Open options are those of the live generation. Errors as for :meth:`start`.
        """
        settings = self.ports.settings
        new = configured(options.model or live.model, settings)
        usual = replace(
            live,
            model=new.model,
            query_prefix=new.query_prefix,
            passage_prefix=new.passage_prefix,
            bm25_k1=new.bm25_k1,
            bm25_b=new.bm25_b,
            language=options.language or live.language,
        )
        recipe = recipe_for(options, usual, settings)
        vectors = await self.ports.embed(new.model, [NEUTRAL])
        page = await read_page(
            self.ports.store, Read(Sources(filter=COUNTED), live, NAMES, _SAMPLE)
        )
        first = [row["source"] for row in page.items]
        documents = [each async for some in self._restorable(live, first) for each in some]
        language = await detected_language(documents) or live.content_language
        recipe = replace(recipe, content_language=language)
        sample = await asyncio.to_thread(
            lambda: [prepare(each, recipe, count=self.ports.counter) for each in documents]
        )
        built = new_collection(
            record,
            recipe,
            dimensions=vectors.shape[1],
            average_length=expected_length(sample),
            now=self.ports.now(),
        )
        await self.ports.store.create_generation(built)
        return built

    async def _build(self, job: Job, advance: Report) -> None:
        """Complete the generation of a job and switch the collection to it, which ends the job.

        The generation may have been begun by any worker and be in any state. The switch happens
        only if a comparison found nothing missing and neither generation changed since, so no
        write to either is lost or undone.

        Raises:
            NotFound: if the collection or the record is gone.
            Unverified: if the verification of the new generation failed.
            EmbeddingUnavailable: if the embedder failed; what was stored until then is kept.
            DatabaseUnavailable: if the database failed, or concurrent writes did not stop.
        """
        name, record = job.collection, job.record or ""
        totals = IndexReport(name, 0, "")
        # All else is in the record; which sources differ is found by comparing both generations.
        options = IndexFields(max_tokens=job.options.get("max_tokens"), force=True)
        if (live := await self.ports.registry.current(name)).duplicates:
            # A stand-in that is not compared itself must be there before its duplicates.
            built = await self.ports.registry.current(record)
            await self._catch_up(live, built, options, advance, totals, compared=False)
        verified = False
        carried: int | None = None  # revision of the live generation that extensions carried over
        passes = 0
        while passes < _PASSES:
            live, built = (
                await self.ports.registry.current(name),
                await self.ports.registry.current(record),
            )
            if await self._catch_up(live, built, options, advance, totals):
                passes += 1
            elif carried != live.revision:
                for carry in self.ports.added.carry:
                    await carry(self.ports, live, built)
                carried = live.revision
            elif not verified:
                total = live.sources
                await advance(total, total, "building the graph")
                await self.maintenance.maintain(record)
                await advance(total, total, "verifying")
                built = await self.ports.registry.current(record)
                await verify(self.ports.store, built)
                verified = True
            else:
                done, result = built.sources, _result(live, built, totals)
                ended = self.jobs.ended(
                    job, "done", stage="done", done=done, total=done, result=result
                )
                if await self.generations.switch(live, built, ended=ended):
                    self.maintenance.schedule(name)
                    return
                passes += 1
        raise _kept_changing()

    async def _catch_up(
        self,
        live: Collection,
        built: Collection,
        options: IndexFields,
        advance: Report,
        totals: IndexReport,
        compared: bool = True,
    ) -> int:
        """Update the new generation to match the live one; return the number of changed sources.

        Sources whose chunks may be duplicates of others are included with ``compared`` only.
        """
        seen = changed = 0
        async for hashes, origins in compared_sources(self.ports.store, live, built):
            wanted = [source for source, hash_ in hashes.items() if origins.get(source) != hash_]
            seen += len(hashes) - len(wanted)
            async for restored in self._restorable(live, wanted):
                documents = [each for each in restored if compared or not each.dedup_threshold]

                async def further(done: int, _total: int, _stage: str, before: int = seen) -> None:
                    await advance(before + done, live.sources, "reindexing")

                part = await self.indexing.index(
                    built.name, documents, options, further, rebuild=True
                )
                for failure in part.failed:
                    raise _of_source(failure.source, failure.error)
                totals.add(part)
                seen += len(documents)
            if not wanted:
                await advance(seen, live.sources, "comparing")
            gone = [source for source in origins if source not in hashes]
            if gone:
                await self.sources.remove(built, gone, children=False)
            changed += len(wanted) + len(gone)
        return changed

    async def _restorable(
        self, live: Collection, sources: Sequence[str]
    ) -> AsyncIterator[list[Document]]:
        """Yield the contents of sources, as many at a time as fit into a message, if they exist.

        Raises:
            TooLarge: if one source does not fit into a message.
        """
        left = [sources[start : start + _PART] for start in range(0, len(sources), _PART)]
        while left:
            part = left.pop(0)
            try:
                yield await self._restored(live, part)
            except TooLarge as exc:
                if len(part) == 1:
                    exc.hint = (
                        "Raise the setting max_message_bytes, or delete this source and index it"
                        " again with less metadata."
                    )
                    raise _of_source(part[0], exc) from exc.__cause__
                half = len(part) // 2
                left[:0] = [part[:half], part[half:]]

    async def _restored(self, live: Collection, sources: Sequence[str]) -> list[Document]:
        """Restore the documents of sources, except those replaced in the meantime.

        A replacement increases the revision, so the next pass handles such a source again.
        """
        records = await read_all(self.ports.store, Read(Sources(sources), live))
        texts = await source_texts(self.ports.store, live, records)
        documents = [
            restored_document(record, texts[record.source])
            for record in records
            if len(texts[record.source]) == record.chunks
        ]
        count = self.ports.settings.chunking.context
        return await with_preceding(documents, live, self.ports.store, count=count)


def _result(live: Collection, built: Collection, totals: IndexReport) -> dict[str, Any]:
    return {
        "generation": live.generation + 1,
        "documents": built.sources,
        "chunks": built.chunks,
        "deleted": live.chunks,
        "model": built.model,
        "dimensions": built.dimensions,
        "reused": totals.reused,
        "failed": [each.recorded() for each in totals.kept],
        "warnings": totals.warnings,
    }


def _of_source(source: str, error: SearchError) -> SearchError:
    """Return the error with the name of the source that caused it."""
    error.args = (f"source {source!r}: {error}",)
    return error


def _is_known(exc: BaseException) -> bool:
    return isinstance(exc, SearchError)


def _given_up(job: Job) -> SearchError:
    return SearchError(
        f"{job.lost} workers in a row were lost after {job.done} of {job.total} sources",
        hint="Check the workers' logs and memory limits, then start the reindex again.",
    )


def _kept_changing() -> SearchError:
    hint = "Try again when there are fewer writes."
    return DatabaseUnavailable("concurrent writes kept changing the collection", hint=hint)


def _busy(job: Job) -> Busy:
    return Busy(
        f"job {job.id} is rebuilding {job.collection!r}, {job.done} of {job.total} sources done",
        hint="search-collection-info shows its progress; search-reindex with cancel ends it.",
        retry_after=10.0,
    )
