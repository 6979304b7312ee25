"""A store in memory: the reference of the store port, for tests and for try-outs.

Searches are exact. Methods do not wait for anything, so each is atomic for the callers of one
event loop. What is stored and what is returned are copies, or cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import GenerationGone
from ability_search.store.memory_index import MemoryCopies, MemoryDocuments
from ability_search.store.memory_search import MemorySearch
from ability_search.store.memory_tables import Generation, LeasedJob, Tables
from ability_search.store.records import Job
from ability_search.store.values import of_collection


class _Collections(Tables):
    """See :class:`ability_search.store.port.CollectionStore`."""

    async def collection(self, name: str) -> Collection | None:
        return self._records.get(name)

    async def collections(self) -> list[Collection]:
        return [self._records[name] for name in sorted(self._records)]

    async def create_collection(self, collection: Collection) -> Collection:
        if collection.name not in self._records:
            self._records[collection.name] = collection
            self._generations[collection.type] = Generation()
        return self._records[collection.name]

    async def create_generation(self, collection: Collection) -> None:
        self._generations.setdefault(collection.type, Generation())

    async def update_collection(self, collection: Collection, fields: Mapping[str, Any]) -> None:
        record = self._current(collection)
        if record is not None:
            self._records[record.name] = replace(record, **fields)

    async def delete_collection(self, collection: Collection) -> bool:
        if self._current(collection) is None:
            return False
        del self._records[collection.name]
        self._clear(of_collection(collection.name))
        dropped = [collection.type]
        for key in [key for key in self._jobs if key[0] == collection.name]:
            built = self._records.pop(self._jobs.pop(key).job.record or "", None)
            if built is not None:
                dropped.append(built.type)
        for generation in dropped:
            await self.drop_generation(generation)
        return True

    async def switch_generation(
        self,
        old: Collection,
        built: Collection,
        new: Collection,
        *,
        grace: int,
        result: Mapping[str, Any],
    ) -> bool:
        live, under = self._current(old), self._records.get(built.name)
        if live is None or live.revision != old.revision:
            return False
        if under is None or under.revision != built.revision:
            return False
        del self._records[built.name]
        self._records[old.name] = replace(new, name=old.name)
        self._due[old.type] = self._now() + grace
        for leased in self._jobs.values():
            if leased.job.collection == old.name and leased.job.record == built.name:
                leased.until = None
                leased.job = replace(
                    leased.job,
                    state="done",
                    stage="done",
                    done=new.sources,
                    total=new.sources,
                    result=deepcopy(dict(result)),
                    owner=None,
                    record=None,
                    updated_at=self._now(),
                )
        return True

    async def publish_generation(self, built: Collection, new: Collection) -> bool:
        if built.name not in self._records:
            raise GenerationGone(built.type)
        if new.name in self._records:
            return False
        del self._records[built.name]
        self._records[new.name] = new
        return True

    async def due_generations(self) -> list[str]:
        return [name for name, due in self._due.items() if due <= self._now()]

    async def generations(self) -> list[str]:
        return list(self._generations)

    async def drop_generation(self, generation: str) -> None:
        self._generations.pop(generation, None)
        self._due.pop(generation, None)


class _Leases(Tables):
    """See :class:`ability_search.store.port.JobStore`."""

    async def jobs(self, collection: str) -> list[Job]:
        found = [leased for leased in self._jobs.values() if leased.job.collection == collection]
        return sorted(map(self._seen, found), key=lambda job: job.kind)

    async def job(self, collection: str, kind: str) -> Job | None:
        leased = self._jobs.get((collection, kind))
        return None if leased is None else self._seen(leased)

    async def orphaned_jobs(self, kind: str) -> list[Job]:
        jobs = map(self._seen, self._jobs.values())
        return [job for job in jobs if job.kind == kind and job.running and job.expired]

    async def records_under_construction(self) -> set[str]:
        jobs = [leased.job for leased in self._jobs.values() if leased.job.running]
        return {job.record for job in jobs if job.record is not None}

    async def begin_job(self, job: Job, *, lease: int, built: Collection | None) -> bool:
        now = self._now()
        last = self._jobs.get((job.collection, job.kind))
        if built is not None:
            if last is not None and last.job.running and not self._expired(last):
                return False
            self._discard_record(None if last is None else last.job.record)
            self._records[built.name] = built
        begun = Job(
            id=job.id,
            kind=job.kind,
            collection=job.collection,
            owner=job.owner,
            record=job.record,
            options=deepcopy(dict(job.options)),
            stage=job.stage,
            done=job.done,
            total=job.total,
            started_at=now,
            updated_at=now,
            result=deepcopy(job.result),
        )
        self._jobs[job.collection, job.kind] = LeasedJob(begun, now + lease)
        return True

    async def claim_job(
        self, job: Job, *, owner: str, record: str, lease: int, lost: int, lost_at: int
    ) -> bool:
        leased = self._running(job)
        if leased is None or leased.job.record != job.record or not self._expired(leased):
            return False
        built = self._records.pop(job.record or "", None)
        if built is not None:
            self._records[record] = replace(built, name=record)
        now = self._now()
        leased.until = now + lease
        leased.job = replace(
            leased.job, owner=owner, record=record, lost=lost, lost_at=lost_at, updated_at=now
        )
        return True

    async def renew_job(
        self, job: Job, *, owner: str, lease: int, done: int, total: int, stage: str
    ) -> bool:
        leased = self._running(job)
        if leased is None or leased.job.owner != owner:
            return False
        now = self._now()
        leased.until = now + lease
        leased.job = replace(
            leased.job,
            owner=None if lease < 0 else owner,
            done=done,
            total=total,
            stage=stage,
            updated_at=now,
        )
        return True

    async def end_job(
        self, job: Job, *, owner: str | None, state: str, fields: Mapping[str, Any]
    ) -> bool:
        leased = self._running(job)
        if leased is None or (owner is not None and leased.job.owner != owner):
            return False
        self._discard_record(leased.job.record)
        leased.until = None
        leased.job = replace(
            leased.job,
            **deepcopy(dict(fields)),
            state=state,
            owner=None,
            record=None,
            updated_at=self._now(),
        )
        return True

    def _running(self, job: Job) -> LeasedJob | None:
        leased = self._jobs.get((job.collection, job.kind))
        same = leased is not None and leased.job.id == job.id and leased.job.running
        return leased if same else None

    def _expired(self, leased: LeasedJob) -> bool:
        return leased.until is not None and leased.until < self._now()

    def _seen(self, leased: LeasedJob) -> Job:
        return replace(deepcopy(leased.job), expired=self._expired(leased))


class MemoryStore(_Collections, MemorySearch, MemoryDocuments, MemoryCopies, _Leases):
    """A complete :class:`ability_search.store.port.Store`.

    Args:
        now: The clock of the store, in epoch milliseconds.
    """
