"""The tools of the memory: inputs and results of the sessions of agents.

An agent has a scratchpad and tasks in each session, and one collection with the history of all its
sessions. One model describes each operation on the wire, and its result.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from ability_search.collection import is_collection_name
from ability_search.search.response import QueryResult
from ability_search.tools.inputs import JobId
from ability_search.tools.results import FailedDocument
from ability_search.tools.tool_row import ToolRow
from ability_search.wire import Count, Input, NonBlank, Result

DEFAULT: str = "default"
EVERY: str = "*"
"""Selects all sessions of an agent."""
HISTORY: str = "history-"
"""The name of the collection of an agent's history begins with it; the agent's id follows."""
LATEST: int = 50
"""History entries that are listed by default."""

Status = Literal["open", "active", "done", "cancelled"]
Part = Literal["scratch", "tasks", "history", "sessions"]


def _agent_id(text: str) -> str:
    if not text or not is_collection_name(f"{HISTORY}{text}"):
        raise ValueError("use 1 to 56 letters, digits, . _ -")
    return text


AgentId = Annotated[
    str,
    AfterValidator(_agent_id),
    Field(
        max_length=56,
        # As the name of a collection, because history-<agentId> is one.
        json_schema_extra={"pattern": r"^[^\x00-,/:-@\[-\^`{-\x7f]{1,56}$"},
        description="Agent: 1 to 56 letters, digits, . _ -",
        examples=["assistant"],
    ),
]
SessionId = Annotated[
    NonBlank, Field(max_length=128, description="Session of the agent.", examples=["monday"])
]
Key = Annotated[NonBlank, StringConstraints(max_length=256)]
Value = Annotated[str, StringConstraints(max_length=65_536)]
TaskId = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")]


class Scope(Input):
    """An agent and one of its sessions."""

    agent_id: AgentId = DEFAULT
    session_id: SessionId = DEFAULT

    @property
    def collection(self) -> str:
        """Name of the collection with the history of the agent."""
        return f"{HISTORY}{self.agent_id}"


class TaskChange(Input):
    """A new task, or with ``id`` the changes of one."""

    id: TaskId | None = Field(None, description="Id of a stored task, to change it.")
    content: NonBlank | None = Field(
        None, max_length=4096, description="What is to be done; needed for a new task."
    )
    status: Status | None = Field(None, description="Default for a new task: open.")

    @model_validator(mode="after")
    def _complete(self) -> TaskChange:
        if self.id is None and self.content is None:
            raise ValueError("content is required for a new task; give id to change a task")
        if self.content is None and self.status is None:
            raise ValueError("content or status is required to change a task")
        return self


class Message(Input):
    """An entry of the history."""

    role: NonBlank = Field(max_length=128, description="Who speaks.", examples=["user"])
    content: NonBlank = Field(description="What was said.", examples=["When do backups run?"])
    time: NonBlank | None = Field(
        None,
        max_length=40,
        description="When it was said: YYYY-MM-DD or RFC 3339. Default: now.",
        examples=["2026-05-01T10:30:00Z"],
    )


class SessionWrite(Scope):
    """Changes of a session."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scratch": {"focus": "the backup of May"}}]}
    )

    scratch: dict[Key, Value] = Field(
        default_factory=dict,
        max_length=256,
        description="Texts to store in the scratchpad by key; known keys are overwritten.",
        examples=[{"focus": "the backup of May"}],
    )
    tasks: list[TaskChange] = Field(
        default_factory=list,
        max_length=256,
        description="Tasks to add, or to change by id.",
        examples=[[{"content": "check the tapes"}, {"id": "1", "status": "done"}]],
    )
    history: list[Message] = Field(
        default_factory=list,
        max_length=256,
        description="What was said, oldest first. It is indexed in the collection"
        " history-<agentId> and searched there.",
        examples=[[{"role": "user", "content": "When do backups run?"}]],
    )
    job_id: JobId = None

    @model_validator(mode="after")
    def _one_session(self) -> SessionWrite:
        if self.session_id == EVERY:
            raise ValueError("sessionId must name one session to write to")
        if not (self.scratch or self.tasks or self.history):
            raise ValueError("one of scratch, tasks and history is required")
        return self


class SessionRead(Scope):
    """Selection of the parts of a session to read."""

    include: list[Part] = Field(
        ["scratch", "tasks", "history"],
        min_length=1,
        max_length=4,
        description="Parts to return; sessions lists the sessions of the agent.",
    )
    keys: list[Key] | None = Field(
        None, max_length=256, description="Only these keys of the scratchpad; each must exist."
    )
    status: Status | None = Field(None, description="Only tasks with this status.")
    limit: Count = Field(
        LATEST, ge=1, le=1000, description="Maximum entries of the history, the newest first."
    )


class HistorySearch(Scope):
    """Input of memory-search."""

    session_id: SessionId = Field(
        EVERY, description="Session of the agent, or * for all of them.", examples=["monday"]
    )
    query: NonBlank = Field(description="What to search for.", examples=["when do backups run"])
    limit: Count = Field(10, ge=1, description="Maximum number of results.")
    as_of: NonBlank | None = Field(
        None,
        max_length=64,
        description="Time of the query, for words such as 'last week': YYYY-MM-DD or RFC 3339."
        " Default: now.",
    )


class SessionErase(Scope):
    """Selection of the records of a session to delete."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"sessionId": "monday", "dryRun": True}]}
    )

    session_id: SessionId = Field(
        DEFAULT, description="Session of the agent, or * for all of them.", examples=["monday"]
    )
    scratch: list[Key] = Field(
        default_factory=list,
        max_length=256,
        description="Delete only these keys of the scratchpad; each must exist.",
    )
    tasks: list[TaskId] = Field(
        default_factory=list, max_length=256, description="Delete only these tasks."
    )
    before: NonBlank | None = Field(
        None,
        max_length=40,
        description="Delete only what is older: scratchpad and tasks by their last change, history"
        " by its time. YYYY-MM-DD or RFC 3339.",
        examples=["2026-01-01"],
    )
    dry_run: bool = Field(False, description="Only count what would be deleted.")

    @property
    def chosen(self) -> bool:
        """Return whether single records are chosen."""
        return bool(self.scratch or self.tasks)

    @model_validator(mode="after")
    def _one_way(self) -> SessionErase:
        if self.chosen and (self.before is not None or self.session_id == EVERY):
            raise ValueError("scratch and tasks need one session and exclude before")
        return self


class ScratchEntry(Result):
    """A text of the scratchpad."""

    key: str
    value: str
    updated_at: str


class Task(Result):
    """A task."""

    id: str
    content: str
    status: Status
    created_at: str
    updated_at: str


class HistoryEntry(Result):
    """An entry of the history."""

    source: str = Field(description="Its source in the collection of the history.")
    role: str
    content: str
    time: str
    turn: int = Field(description="Number in the session, from 1.")


class SessionSummary(Result):
    """A session of an agent."""

    session_id: str
    updated_at: str


class SessionState(Result):
    """Parts of a session that were read or written."""

    agent_id: str
    session_id: str
    scratch: list[ScratchEntry] | None = Field(None, description="In order of the keys.")
    tasks: list[Task] | None = Field(None, description="In order of the ids.")
    history: list[HistoryEntry] | None = Field(
        None, description="Newest first; of a write, the new ones in their order."
    )
    sessions: list[SessionSummary] | None = Field(None, description="All sessions of the agent.")


class SessionWritten(SessionState):
    """Result of memory-write: what was written, in parts."""

    chunks: int = Field(description="Chunks of the history that were stored.")
    failed: list[FailedDocument] = Field(description="Entries of the history that were not stored.")
    job_id: str | None = Field(None, description="Job that indexed the history, if there is one.")
    warnings: list[str] | None = None


class SessionErased(Result):
    """Number of records that were, or with ``dryRun`` would be, deleted."""

    agent_id: str
    session_id: str
    scratch: int
    tasks: int
    history: int
    dry_run: bool


MEMORY: tuple[ToolRow, ...] = (
    ToolRow(
        name="memory-write",
        title="Write to the memory",
        summary="Write to the scratchpad, the tasks and the history of a session of an agent.",
        usage="Use it for what you need later in this or another conversation. Repeating a call"
        " adds new tasks and the history again.",
        params=SessionWrite,
        result=SessionWritten,
        idempotent=False,
    ),
    ToolRow(
        name="memory-read",
        title="Read the memory",
        summary="Read the scratchpad, the tasks and the latest history of a session.",
        usage="Use it at the start of a conversation.",
        params=SessionRead,
        result=SessionState,
        lean=("agentId", "sessionId", "include"),
        read_only=True,
    ),
    ToolRow(
        name="memory-search",
        title="Search the memory",
        summary="Search the history of all sessions of an agent, or of one.",
        usage="Use it to recall what was said; hits have the session, role and time as metadata.",
        params=HistorySearch,
        result=QueryResult,
        lean=("agentId", "query", "limit"),
        read_only=True,
        work=lambda value: value.limit + len(value.query) // 10,
    ),
    ToolRow(
        name="memory-delete",
        title="Delete from the memory",
        summary="Delete single records, a session, all of an agent, or what is old.",
        usage="This cannot be undone; dryRun only counts.",
        params=SessionErase,
        result=SessionErased,
        lean=("agentId", "sessionId", "before", "dryRun"),
        destructive=True,
    ),
)
