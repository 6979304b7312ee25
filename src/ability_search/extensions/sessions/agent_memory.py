"""`memory`: the scratchpad, the tasks and the history of agents."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import NOT_FOUND, app, command, new_group
from ability_search.extensions.cli.clients import CALL, CallOptions
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    JsonOption,
    TimeoutOption,
    YesOption,
    given,
)
from ability_search.extensions.sessions.memory_tools import DEFAULT, Status

group = new_group("Write, read and search the scratchpad, the tasks and the history of agents.")
scratch = new_group("Keep texts by key.")
task = new_group("Keep a list of tasks.")
history = new_group("Keep what was said, and search it over all sessions.")
app.add_typer(group, name="memory")
group.add_typer(scratch, name="scratch")
group.add_typer(task, name="task")
group.add_typer(history, name="history")

AgentOption = Annotated[str, typer.Option("--agent", "-a", help="Agent.")]
TextArgument = Annotated[str, typer.Argument(help="The text; - reads stdin.")]
KeyArgument = Annotated[str, typer.Argument(help="Key of the text.")]
IdArgument = Annotated[str, typer.Argument(help="Id of the task.")]
StatusOption = Annotated[Status | None, typer.Option("--status", help="Status of the tasks.")]
_ERASURE = CallOptions(timeout=600.0)


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """The session that a command is about, and how it is reached."""

    agent: AgentOption = DEFAULT
    session: Annotated[str, typer.Option("--session", "-s", help="Session of the agent.")] = DEFAULT
    broker: BrokerOption = None
    timeout: TimeoutOption = 60.0

    def call(self, tool: str, **fields: Any) -> dict[str, Any]:
        """Call a tool on the session and return its answer."""
        calling = CallOptions(self.broker, self.timeout)
        return calling.call(tool, agentId=self.agent, sessionId=self.session, **fields)


def _text(argument: str) -> str:
    return sys.stdin.read() if argument == "-" else argument


@command(scratch, "set")
def scratch_set(key: KeyArgument, text: TextArgument, *, target: SessionTarget) -> None:
    """Store a text under a key; a stored one is overwritten.

    Example:
        ability-search memory scratch set focus 'the backup of May'
        cat plan.md | ability-search memory scratch set plan - --session monday
    """
    target.call("memory-write", scratch={key: _text(text)})


@command(scratch, "get")
def scratch_get(key: KeyArgument, *, target: SessionTarget) -> None:
    """Print the text stored under a key.

    Example:
        ability-search memory scratch get focus
    """
    found = target.call("memory-read", include=["scratch"], keys=[key])
    output.stdout().print(output.plain(found["scratch"][0]["value"], lines=True))


@command(scratch, "list")
def scratch_list(*, target: SessionTarget, as_json: JsonOption = False) -> None:
    """List the scratchpad of a session.

    Example:
        ability-search memory scratch list --agent ada --session monday
    """
    found = target.call("memory-read", include=["scratch"])["scratch"]
    _print(found, ("key", "value", "updatedAt"), "nothing is stored", as_json=as_json)


@command(scratch, "delete")
def scratch_delete(key: KeyArgument, *, target: SessionTarget) -> None:
    """Delete the text stored under a key.

    Example:
        ability-search memory scratch delete focus
    """
    target.call("memory-delete", scratch=[key])


@command(task, "add")
def task_add(text: TextArgument, *, target: SessionTarget) -> None:
    """Add a task and print its id.

    Example:
        ability-search memory task add 'check the tapes'
    """
    found = target.call("memory-write", tasks=[{"content": _text(text)}])
    output.stdout().print(found["tasks"][0]["id"])


@command(task, "list")
def task_list(
    status: StatusOption = None, *, target: SessionTarget, as_json: JsonOption = False
) -> None:
    """List the tasks of a session.

    Example:
        ability-search memory task list --status open
    """
    found = target.call("memory-read", include=["tasks"], status=status)["tasks"]
    _print(found, ("id", "status", "content", "updatedAt"), "no such tasks", as_json=as_json)


@command(task, "update")
def task_update(
    identifier: IdArgument,
    text: Annotated[str | None, "New text."] = None,
    status: StatusOption = None,
    *,
    target: SessionTarget,
) -> None:
    """Change the text or the status of a task.

    Example:
        ability-search memory task update 1 --status active
        ability-search memory task update 1 --text 'check all tapes'
    """
    target.call("memory-write", tasks=[given(id=identifier, content=text, status=status)])


@command(task, "done")
def task_done(identifier: IdArgument, *, target: SessionTarget) -> None:
    """Mark a task as done.

    Example:
        ability-search memory task done 1
    """
    target.call("memory-write", tasks=[{"id": identifier, "status": "done"}])


@command(task, "delete")
def task_delete(identifier: IdArgument, *, target: SessionTarget) -> None:
    """Delete a task.

    Example:
        ability-search memory task delete 1
    """
    target.call("memory-delete", tasks=[identifier])


@command(history, "add")
def history_add(
    role: Annotated[str, typer.Argument(help="Who speaks, such as user.")],
    text: TextArgument,
    time: Annotated[str | None, "When it was said.  [default: now]"] = None,
    *,
    target: SessionTarget,
) -> None:
    """Add an entry to the history.

    Example:
        ability-search memory history add user 'When do backups run?'
        ability-search memory history add user 'At two.' --time 2026-05-01T10:30:00Z
    """
    target.call("memory-write", history=[given(role=role, content=_text(text), time=time)])


@command(history, "list")
def history_list(
    limit: Annotated[int, typer.Option("-k", "--limit", min=1, help="Maximum entries.")] = 50,
    *,
    target: SessionTarget,
    as_json: JsonOption = False,
) -> None:
    """List the history of a session, the newest first.

    Example:
        ability-search memory history list --limit 10
    """
    found = target.call("memory-read", include=["history"], limit=limit)["history"]
    _print(found, ("time", "role", "content"), "nothing was said", as_json=as_json)


@command(history, "search")
def history_search(
    query: Annotated[str, typer.Argument(help="What to search for.")],
    limit: Annotated[int, typer.Option("-k", "--limit", min=1, help="Maximum hits.")] = 10,
    agent: AgentOption = DEFAULT,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only this session.  [default: all]")
    ] = None,
    calling: CallOptions = CALL,
) -> None:
    """Search the history of all sessions of an agent.

    Exit code 3 means that nothing was found, or that the agent has no history.

    Example:
        ability-search memory history search 'when do backups run' --agent ada
    """
    wanted = {"agentId": agent, "sessionId": session, "query": query, "limit": limit}
    answer = calling.call("memory-search", **wanted)
    if not calling.printed(answer):
        rows = [
            {"score": f"{hit['score']:.3f}", "content": hit["content"], **hit["metadata"]}
            for hit in answer["results"]
        ]
        columns = ("score", "session", "time", "role", "content")
        _print(rows, columns, "nothing was found", as_json=False)
    if not answer["results"]:
        raise typer.Exit(NOT_FOUND)


@command(group, "sessions")
def sessions(agent: AgentOption = DEFAULT, calling: CallOptions = CALL) -> None:
    """List the sessions of an agent.

    Example:
        ability-search memory sessions --agent ada
    """
    found = calling.call("memory-read", agentId=agent, sessionId=DEFAULT, include=["sessions"])
    columns = ("sessionId", "updatedAt")
    _print(found["sessions"], columns, "no sessions", as_json=calling.as_json)


@command(group, "erase")
def erase(
    agent: AgentOption = DEFAULT,
    session: Annotated[
        str, typer.Option("--session", "-s", help="Session of the agent, or * for all of them.")
    ] = DEFAULT,
    before: Annotated[str | None, "Delete only what is older.", "DATE"] = None,
    dry_run: Annotated[bool, "Only count what would be deleted."] = False,
    yes: YesOption = False,
    calling: CallOptions = _ERASURE,
) -> None:
    """Delete a session, all of an agent (--session '*'), or what is older than a date.

    Where nobody can be asked, nothing is deleted without --yes, and the exit code is 2.

    Example:
        ability-search memory erase --agent ada --session '*' --before 2026-01-01 --dry-run
        ability-search memory erase --agent ada --session monday --yes
    """
    if not (yes or dry_run):
        what = f"session {session} of agent {agent}" + (f" before {before}" if before else "")
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"this deletes {what}; confirm with --yes", param_hint="--yes")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    wanted = {"agentId": agent, "sessionId": session, "before": before, "dryRun": dry_run}
    found = calling.call("memory-delete", **wanted)
    if calling.printed(found):
        return
    parts = (("scratch", "key"), ("tasks", "task"), ("history", "turn"))
    counts = ", ".join(output.counted(found[part], noun) for part, noun in parts)
    output.stdout().print(f"{'would delete' if dry_run else 'deleted'} {counts}")


def _print(
    rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...], none: str, *, as_json: bool
) -> None:
    """Print rows as a table, or as JSON; ``none`` is the message without any."""
    found = list(rows)
    if as_json:
        output.print_json(found)
    elif not found:
        output.stderr().print(none)
    else:
        heads = [each.removesuffix("At").removesuffix("Id") for each in columns]
        output.print_table(heads, [[_cell(name, row[name]) for name in columns] for row in found])


def _cell(name: str, value: str) -> str:
    return output.moment(value) if name in ("time", "updatedAt") else value
