"""Sessions of agents: scratchpads and tasks as small records, history as a collection.

A session has a record of its own with the numbers of its turns and tasks, which every change of its
scratchpad and its tasks touches.

The entries of a session are the documents ``<session>/<turn>`` of the collection
``history-<agent>``: turns of a conversation, searched in their context like any others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from ability_search.documents import Document, instant
from ability_search.errors import InvalidInput, NotFound, TooLarge
from ability_search.extensions.sessions.memory_tools import (
    EVERY,
    HistoryEntry,
    HistorySearch,
    Scope,
    ScratchEntry,
    SessionErase,
    SessionErased,
    SessionRead,
    SessionState,
    SessionSummary,
    SessionWrite,
    SessionWritten,
    Task,
)
from ability_search.filters.operands import instants
from ability_search.index.index_fields import IndexFields
from ability_search.index.preparation import restored_document
from ability_search.search.response import QueryResult
from ability_search.store.pages import count, read_all, source_texts
from ability_search.store.records import INDEX
from ability_search.store.values import (
    Add,
    Count,
    Delete,
    Put,
    Read,
    Record,
    Records,
    Require,
    Sources,
    of_agent,
)
from ability_search.tools.calls import RunningCall, Services
from ability_search.tools.handlers import SHORT_RUN, answer_query
from ability_search.tools.inputs import QueryInput
from ability_search.tools.requests import at_most
from ability_search.tools.responses import index_record
from ability_search.tools.results import FailedDocument

SessionKind = Literal["scratch", "task"]

MOST_KEYS: Final = 1000
"""Maximum number of keys of a scratchpad."""
MOST_TASKS: Final = 10_000
"""Maximum number of tasks of a session."""
_TURNS, _TASKS = "turns", "tasks"
"""Counters of a session."""
_PAGE = 256
"""History entries that are read at once."""
_SESSION = "session"
"""Kind of the records of sessions, by session; those of the others are by session and key."""
_KINDS: tuple[SessionKind, ...] = ("scratch", "task")


class Sessions:
    """The handlers of the tools, each named like its tool; nothing is cached."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.ports.store
        self._registry = services.ports.registry

    async def write(self, value: SessionWrite, call: RunningCall) -> SessionWritten:
        """Write the scratchpad, then the tasks, then index the history as a job.

        Raises:
            NotFound: if a task to change does not exist; tasks and history are unchanged then.
            TooLarge: if the session would have too many records, or a text is too long.
        """
        new = self._documents(value)
        written = SessionWritten(**_scope(value), chunks=0, failed=[])
        if value.scratch:
            texts = sorted(value.scratch.items())
            puts = [_put(value, "scratch", key, {"value": text}) for key, text in texts]
            changed = instant(await self._put(value, puts, MOST_KEYS))
            written.scratch = [
                ScratchEntry(key=key, value=text, updated_at=changed) for key, text in texts
            ]
        if value.tasks:
            written.tasks = await self._change_tasks(value)
        if new:
            turn = await self._count_up(value, _TURNS, len(new)) - len(new)
            documents = [
                replace(each, source=_source(value.session_id, number))
                for number, each in enumerate(new, start=turn + 1)
            ]
            job_of = call.recorded(INDEX, value.collection, value.job_id, after=SHORT_RUN)
            async with job_of as job:
                report = await self._services.indexing.index(
                    value.collection, documents, IndexFields(), job.progress
                )
                job.end(report.documents, index_record(report))
            await self._services.maintenance.after_write(value.collection)
            failed = {each.source for each in report.failed}
            written.history = [_entry(each) for each in documents if each.source not in failed]
            written.chunks, written.job_id = report.chunks, job.id
            written.failed = [FailedDocument(**each.recorded()) for each in report.failed]
            written.warnings = report.warnings or None
        return written

    async def read(self, value: SessionRead, _call: RunningCall) -> SessionState:
        """Return parts of a session; those of an unknown session are empty.

        Raises:
            NotFound: if a key of the scratchpad does not exist.
        """
        state = SessionState(**_scope(value))
        if "scratch" in value.include:
            state.scratch = [
                ScratchEntry(key=each.key[1], updated_at=instant(each.updated_at), **each.fields)
                for each in await self._records(value, "scratch", value.keys)
            ]
        if "tasks" in value.include:
            tasks = map(_task, await self._records(value, "task"))
            kept = (each for each in tasks if value.status in (None, each.status))
            state.tasks = sorted(kept, key=lambda each: int(each.id))
        if "history" in value.include:
            state.history = []
            async for page in self._history(value, value.session_id):
                state.history += map(_entry, page)
                if len(state.history) >= value.limit:
                    break
            state.history = state.history[: value.limit]
        if "sessions" in value.include:
            state.sessions = [
                SessionSummary(session_id=each.key[0], updated_at=instant(each.updated_at))
                for each in await self._sessions(value)
            ]
        return state

    async def search(self, value: HistorySearch, _call: RunningCall) -> QueryResult:
        """Search the history of an agent."""
        asked = value.model_dump(include={"query", "limit", "as_of"}, exclude_none=True)
        if value.session_id != EVERY:
            asked["filter"] = {"metadata.session": value.session_id}
        return await answer_query(self._services, QueryInput(collection=value.collection, **asked))

    async def delete(self, value: SessionErase, _call: RunningCall) -> SessionErased:
        """Delete single records, or all of a session or an agent, or what is older than a time.

        Raises:
            NotFound: if a chosen record does not exist; nothing is deleted then.
        """
        erased = SessionErased(
            **_scope(value), scratch=0, tasks=0, history=0, dry_run=value.dry_run
        )
        if value.chosen:
            erased.scratch = len(await self._records(value, "scratch", value.scratch))
            erased.tasks = len(await self._records(value, "task", value.tasks))
            old = [
                _selected(value, "scratch", value.scratch),
                _selected(value, "task", value.tasks),
            ]
        else:
            before = instants("before", value.before)[0] if value.before else None
            session = None if value.session_id == EVERY else value.session_id
            scope, prefix = of_agent(value.agent_id), () if session is None else (session,)
            old = [Records(kind, scope, prefix=prefix, before=before) for kind in _KINDS]
            counted = await count(self._store, *map(Count, old))
            erased.scratch, erased.tasks = (each.groups[None][0] for each in counted)
            if session is None and before is None:
                collection = await self._registry.reload(value.collection)
                erased.history = collection.sources if collection else 0
                if collection and not value.dry_run:
                    await self._services.sources.delete(value.collection)
            else:
                known = await self._sessions(value) if session is None else []
                for name in [each.key[0] for each in known] if session is None else [session]:
                    erased.history += await self._erase_history(value, name, before)
            if before is None:
                old.append(Records(_SESSION, scope, keys=[prefix] if prefix else None))
        if not value.dry_run:
            await self._store.commit(list(map(Delete, old)))
        return erased

    async def _erase_history(self, value: SessionErase, session: str, before: int | None) -> int:
        erased = 0
        async for page in self._history(value, session):
            sources = [
                each.source
                for each in page
                if before is None or instants("time", each.metadata["time"])[0] < before
            ]
            if not value.dry_run:
                await self._services.sources.discard(value.collection, sources)
            erased += len(sources)
        return erased

    async def _history(self, value: Scope, session: str) -> AsyncIterator[list[Document]]:
        """Yield the entries of a session, the newest first, page by page."""
        collection = await self._registry.reload(value.collection)
        heads = await self._sessions(value, session) if collection else []
        last = heads[0].fields.get(_TURNS, 0) if heads else 0
        while collection is not None and last > 0:
            first = max(1, last - _PAGE + 1)
            names = [_source(session, turn) for turn in range(first, last + 1)]
            records = await read_all(self._store, Read(Sources(names), collection))
            texts = await source_texts(self._store, collection, records)
            found = [restored_document(each, texts[each.source]) for each in records]
            yield sorted(found, key=lambda each: each.source, reverse=True)
            last = first - 1

    def _documents(self, value: SessionWrite) -> list[Document]:
        """Return the history to write, without the sources."""
        ports, documents = self._services.ports, []
        for place, message in enumerate(value.history):
            field = f"history.{place}"
            size, most = len(message.content.encode()), ports.settings.limits.document_bytes
            hint = "Split it (setting max_document_bytes)."
            at_most(most, f"{field}.content", size, "bytes", hint)
            time = instants(f"{field}.time", message.time)[0] if message.time else ports.now()
            about = {"session": value.session_id, "role": message.role, "time": instant(time)}
            documents.append(Document("", "", message.content, about, format="text"))
        return documents

    async def _change_tasks(self, value: SessionWrite) -> list[Task]:
        known = [each.id for each in value.tasks if each.id is not None]
        if len(set(known)) < len(known):
            raise InvalidInput("tasks", "name an id twice", hint="Send one change of each.")
        new = len(value.tasks) - len(known)
        last = await self._count_up(value, _TASKS, new) if new else 0
        ids = iter(range(last - new + 1, last + 1))
        puts = []
        for each in value.tasks:
            fields = each.model_dump(include={"content", "status"}, exclude_none=True)
            if each.id is None:
                fields = {"status": "open", **fields}
            puts.append(_put(value, "task", each.id or str(next(ids)), fields))
        await self._put(value, puts, MOST_TASKS, known)
        written = await self._records(value, "task", [each.key[1] for each in puts])
        return sorted(map(_task, written), key=lambda each: int(each.id))

    async def _put(
        self, value: Scope, puts: Sequence[Put], most: int, known: Sequence[str] = ()
    ) -> int:
        """Put records of one kind, of which some are known; return the time.

        Raises:
            NotFound: if a known one does not exist.
            TooLarge: if the session would have more than ``most`` of them.
        """
        kind: SessionKind = "task" if puts[0].kind == "task" else "scratch"
        required = [Require(_selected(value, kind, known), at_least=len(known))] if known else []
        limit = Require(_selected(value, kind), at_most=most)
        touched = Put(_SESSION, of_agent(value.agent_id), (value.session_id,), {}, merge=True)
        committed = await self._store.commit([*required, *puts, touched, limit])
        if not committed.done:
            await self._records(value, kind, known)
            what = "tasks" if kind == "task" else kind
            raise TooLarge(
                f"{what}: at most {most} in a session",
                hint="Delete some, or use another sessionId.",
            )
        return committed.at

    async def _sessions(self, value: Scope, session: str | None = None) -> list[Record]:
        """Return the record of a session of an agent, or those of all."""
        keys = None if session is None else [(session,)]
        return await read_all(self._store, Read(Records(_SESSION, of_agent(value.agent_id), keys)))

    async def _records(
        self, value: Scope, kind: SessionKind, keys: Sequence[str] | None = None
    ) -> list[Record]:
        """Return records of a session; raise NotFound if one of the keys does not exist."""
        if keys is not None and not keys:
            return []
        found = await read_all(self._store, Read(_selected(value, kind, keys)))
        missing = set(keys or ()) - {each.key[1] for each in found}
        if missing:
            what = "task" if kind == "task" else "key of the scratchpad"
            hint = f"Read {kind} of the session to see what is stored."
            raise NotFound(what, min(missing), hint=hint)
        return found

    async def _count_up(self, value: Scope, counter: str, by: int) -> int:
        add = Add(_SESSION, of_agent(value.agent_id), (value.session_id,), {counter: by})
        record = (await self._store.commit([add])).record
        assert record is not None
        return int(record.fields[counter])


def _scope(value: Scope) -> dict[str, str]:
    return {"agent_id": value.agent_id, "session_id": value.session_id}


def _selected(value: Scope, kind: SessionKind, keys: Sequence[str] | None = None) -> Records:
    session = value.session_id
    if keys is None:
        return Records(kind, of_agent(value.agent_id), prefix=(session,))
    return Records(kind, of_agent(value.agent_id), keys=[(session, key) for key in keys])


def _put(value: Scope, kind: SessionKind, key: str, fields: Mapping[str, str]) -> Put:
    return Put(kind, of_agent(value.agent_id), (value.session_id, key), fields, merge=True)


def _source(session: str, turn: int) -> str:
    return f"{session}/{turn:09d}"


def _task(record: Record) -> Task:
    times = {"created_at": instant(record.created_at), "updated_at": instant(record.updated_at)}
    return Task(id=record.key[1], **record.fields, **times)


def _entry(document: Document) -> HistoryEntry:
    about = document.metadata
    return HistoryEntry(
        source=document.source,
        role=about["role"],
        content=document.content,
        time=about["time"],
        turn=int(document.source.rpartition("/")[2]),
    )
