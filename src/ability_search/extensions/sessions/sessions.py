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

from ability_search.collection import Collection
from ability_search.documents import Document, instant
from ability_search.errors import InvalidInput, NotFound, TooLarge
from ability_search.extensions.sessions.session_options import (
    EVERY,
    HistoryEntry,
    Scope,
    ScratchEntry,
    SessionErase,
    SessionErased,
    SessionRead,
    SessionState,
    SessionSummary,
    SessionWrite,
    Task,
    TaskChange,
)
from ability_search.filters.operands import instants
from ability_search.index.index_calls import IndexReport, Report
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.preparation import restored_document
from ability_search.index.stored_sources import StoredSources
from ability_search.store.pages import read_all, source_texts
from ability_search.store.values import (
    Add,
    Change,
    Count,
    Counted,
    Delete,
    Key,
    Put,
    Read,
    Record,
    Records,
    Require,
    Sources,
    of_agent,
)

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
    """The services on sessions; everything is stored, nothing is cached."""

    def __init__(self, ports: IndexPorts, indexing: IndexPipeline, sources: StoredSources) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._limits = ports.settings.limits
        self._now = ports.now
        self._indexing = indexing
        self._sources = sources

    async def write(self, value: SessionWrite, report: Report) -> tuple[IndexReport, SessionState]:
        """Write the scratchpad, then the tasks, then index the history.

        Raises:
            NotFound: if a task to change does not exist; tasks and history are unchanged then.
            TooLarge: if the session would have too many records, or a text is too long.
        """
        new = self._documents(value)
        state = SessionState(agent_id=value.agent_id, session_id=value.session_id)
        if value.scratch:
            puts = [_put(value, "scratch", k, {"value": v}) for k, v in value.scratch.items()]
            changed = instant(await self._put(value, puts, MOST_KEYS))
            state.scratch = [
                ScratchEntry(key=key, value=text, updated_at=changed)
                for key, text in sorted(value.scratch.items())
            ]
        if value.tasks:
            state.tasks = await self._change_tasks(value, value.tasks)
        documents: list[Document] = []
        if new:
            turn = await self._count_up(value, _TURNS, len(new)) - len(new)
            documents = [
                replace(each, source=_source(value.session_id, number))
                for number, each in enumerate(new, start=turn + 1)
            ]
        done = await self._indexing.index(value.collection, documents, IndexFields(), report)
        if new:
            failed = {each.source for each in done.failed}
            state.history = [_entry(each) for each in documents if each.source not in failed]
        return done, state

    async def read(self, value: SessionRead) -> SessionState:
        """Return parts of a session; those of an unknown session are empty.

        Raises:
            NotFound: if a key of the scratchpad does not exist.
        """
        wanted, state = set(value.include), SessionState(**value.model_dump(include=_SCOPE))
        if "scratch" in wanted:
            found = await self._records(value, "scratch", value.keys)
            state.scratch = list(map(_scratch, found))
        if "tasks" in wanted:
            tasks = map(_task, await self._records(value, "task"))
            kept = (each for each in tasks if value.status in (None, each.status))
            state.tasks = sorted(kept, key=lambda each: int(each.id))
        if "history" in wanted:
            state.history = []
            async for page in self._history(value, value.session_id):
                state.history += map(_entry, page)
                if len(state.history) >= value.limit:
                    break
            state.history = state.history[: value.limit]
        if "sessions" in wanted:
            state.sessions = [
                SessionSummary(session_id=each.key[0], updated_at=instant(each.updated_at))
                for each in await self._sessions(value)
            ]
        return state

    async def erase(self, value: SessionErase) -> SessionErased:
        """Delete single records, or all of a session or an agent, or what is older than a time.

        Raises:
            NotFound: if a chosen record does not exist; nothing is deleted then.
        """
        if value.chosen:
            chosen: dict[SessionKind, Sequence[str]] = {
                "scratch": value.scratch,
                "task": value.tasks,
            }
            for kind, keys in chosen.items():
                await self._records(value, kind, keys)
            if not value.dry_run:
                await self._store.commit(
                    [Delete(_selected(value, kind, keys)) for kind, keys in chosen.items()]
                )
            return _erased(value, len(set(value.scratch)), len(set(value.tasks)), 0)
        before = instants("before", value.before)[0] if value.before else None
        session = None if value.session_id == EVERY else value.session_id
        scope, prefix = of_agent(value.agent_id), () if session is None else (session,)
        old = [Records(kind, scope, prefix=prefix, before=before) for kind in _KINDS]
        scratch, tasks = map(_number, await self._store.read(list(map(Count, old))))
        if session is None and before is None:
            history = await self._erase_collection(value)
        else:
            known = [session] if session else [each.key[0] for each in await self._sessions(value)]
            history = sum([await self._erase_history(value, name, before) for name in known])
        if not value.dry_run:
            if before is None:
                old.append(Records(_SESSION, scope, keys=[prefix] if prefix else None))
            await self._store.commit(list(map(Delete, old)))
        return _erased(value, scratch, tasks, history)

    async def _erase_collection(self, value: SessionErase) -> int:
        collection = await self._registry.reload(value.collection)
        if collection is None:
            return 0
        if not value.dry_run:
            await self._sources.delete(value.collection)
        return collection.sources

    async def _erase_history(self, value: SessionErase, session: str, before: int | None) -> int:
        erased = 0
        async for page in self._history(value, session):
            sources = [
                each.source
                for each in page
                if before is None or instants("time", each.metadata["time"])[0] < before
            ]
            if not value.dry_run:
                await self._sources.discard(value.collection, sources)
            erased += len(sources)
        return erased

    async def _history(self, value: Scope, session: str) -> AsyncIterator[list[Document]]:
        """Yield the entries of a session, the newest first, page by page."""
        collection = await self._registry.reload(value.collection)
        heads = await read_all(
            self._store, Read(Records(_SESSION, of_agent(value.agent_id), keys=[(session,)]))
        )
        last = heads[0].fields.get(_TURNS, 0) if heads and collection else 0
        while collection is not None and last > 0:
            first = max(1, last - _PAGE + 1)
            sources = [_source(session, turn) for turn in range(last, first - 1, -1)]
            found = await self._restored(collection, sources)
            yield [found[source] for source in sources if source in found]
            last = first - 1

    async def _restored(
        self, collection: Collection, sources: Sequence[str]
    ) -> dict[str, Document]:
        records = await read_all(self._store, Read(Sources(sources), collection))
        texts = await source_texts(self._store, collection, records)
        return {each.source: restored_document(each, texts[each.source]) for each in records}

    def _documents(self, value: SessionWrite) -> list[Document]:
        """Return the history to write, without the sources."""
        documents = []
        for place, message in enumerate(value.history):
            field = f"history.{place}"
            size, most = len(message.content.encode()), self._limits.document_bytes
            if size > most:
                raise TooLarge(
                    f"{field}.content: {size} bytes, at most {most} are allowed",
                    hint="Split it (setting max_document_bytes).",
                )
            time = instants(f"{field}.time", message.time)[0] if message.time else self._now()
            about = {"session": value.session_id, "role": message.role, "time": instant(time)}
            documents.append(Document("", "", message.content, about, format="text"))
        return documents

    async def _change_tasks(self, value: SessionWrite, changes: Sequence[TaskChange]) -> list[Task]:
        known = [each for each in changes if each.id is not None]
        ids = [each.id or "" for each in known]
        if len(set(ids)) < len(ids):
            raise InvalidInput("tasks", "name an id twice", hint="Send one change of each.")
        if known:
            required = Require(_selected(value, "task", ids), at_least=len(ids))
            changed = [
                _put(value, "task", key, _given(each)) for key, each in zip(ids, known, strict=True)
            ]
            committed = await self._store.commit([required, *changed, _touched(value)])
            if not committed.done:
                await self._records(value, "task", ids)
        added = [each for each in changes if each.id is None]
        if added:
            last = await self._count_up(value, _TASKS, len(added)) - len(added)
            new = [str(last + n) for n in range(1, len(added) + 1)]
            puts = [
                _put(value, "task", key, {"value": "", "status": "open", **_given(each)})
                for key, each in zip(new, added, strict=True)
            ]
            await self._put(value, puts, MOST_TASKS)
            ids += new
        stored = {each.key[1]: each for each in await self._records(value, "task", ids)}
        return [_task(stored[each]) for each in sorted(ids, key=int)]

    async def _put(self, value: Scope, puts: Sequence[Put], most: int) -> int:
        """Put records of one kind; return the time.

        Raises:
            TooLarge: if the session would have more than ``most`` of them.
        """
        kind = puts[0].kind
        every = Records(kind, of_agent(value.agent_id), prefix=(value.session_id,))
        changes: list[Change] = [*puts, _touched(value), Require(every, at_most=most)]
        committed = await self._store.commit(changes)
        if not committed.done:
            what = "tasks" if kind == "task" else kind
            raise TooLarge(
                f"{what}: at most {most} in a session",
                hint="Delete some, or use another sessionId.",
            )
        return committed.at

    async def _sessions(self, value: Scope) -> list[Record]:
        return await read_all(self._store, Read(Records(_SESSION, of_agent(value.agent_id))))

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


_SCOPE = {"agent_id", "session_id"}


def _selected(value: Scope, kind: SessionKind, keys: Sequence[str] | None = None) -> Records:
    session = value.session_id
    if keys is None:
        return Records(kind, of_agent(value.agent_id), prefix=(session,))
    return Records(kind, of_agent(value.agent_id), keys=[(session, key) for key in keys])


def _put(value: Scope, kind: SessionKind, key: str, fields: Mapping[str, str]) -> Put:
    identity: Key = (value.session_id, key)
    return Put(kind, of_agent(value.agent_id), identity, fields, merge=True)


def _touched(value: Scope) -> Put:
    return Put(_SESSION, of_agent(value.agent_id), (value.session_id,), {}, merge=True)


def _given(task: TaskChange) -> dict[str, str]:
    fields = {"value": task.content, "status": task.status}
    return {name: value for name, value in fields.items() if value is not None}


def _number(counted: object) -> int:
    assert isinstance(counted, Counted)
    return counted.groups[None][0]


def _source(session: str, turn: int) -> str:
    return f"{session}/{turn:09d}"


def _scratch(record: Record) -> ScratchEntry:
    return ScratchEntry(
        key=record.key[1], value=record.fields["value"], updated_at=instant(record.updated_at)
    )


def _task(record: Record) -> Task:
    return Task.model_validate(
        {
            "id": record.key[1],
            "content": record.fields["value"],
            "status": record.fields["status"],
            "created_at": instant(record.created_at),
            "updated_at": instant(record.updated_at),
        }
    )


def _entry(document: Document) -> HistoryEntry:
    about = document.metadata
    turn = int(document.source.rpartition("/")[2])
    return HistoryEntry(
        source=document.source,
        role=about["role"],
        content=document.content,
        time=about["time"],
        turn=turn,
    )


def _erased(value: SessionErase, scratch: int, tasks: int, history: int) -> SessionErased:
    scope = value.model_dump(include=_SCOPE)
    return SessionErased(
        **scope, scratch=scratch, tasks=tasks, history=history, dry_run=value.dry_run
    )
