"""The commands of the memory of agents: what they ask of the tools, and what they print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.ability_search.extensions.cli import conftest
from tests.ability_search.extensions.cli.conftest import Network, Run, played

eight, network, run = conftest.eight, conftest.network, conftest.run

MOMENT = "2026-05-01T10:30:00.000Z"
SCOPE = {"agentId": "ada", "sessionId": "mon"}
WHERE = ("--agent", "ada", "--session", "mon")


@pytest.mark.parametrize(
    ("words", "tool", "session"),
    [
        (["scratch", "set", "k", "text"], "memory-write", {"scratch": {"k": "text"}}),
        (["scratch", "delete", "k"], "memory-delete", {"scratch": ["k"]}),
        (["task", "done", "1"], "memory-write", {"tasks": [{"id": "1", "status": "done"}]}),
        (
            ["task", "update", "1", "--text", "new", "--status", "active"],
            "memory-write",
            {"tasks": [{"id": "1", "content": "new", "status": "active"}]},
        ),
        (["task", "delete", "1"], "memory-delete", {"tasks": ["1"]}),
        (
            ["history", "add", "user", "hello", "--time", "2026-05-01"],
            "memory-write",
            {"history": [{"role": "user", "content": "hello", "time": "2026-05-01"}]},
        ),
    ],
)
def test_commands_that_write_call_one_tool(
    network: Network, run: Run, words: list[str], tool: str, session: dict[str, Any]
) -> None:
    network.answers[tool] = lambda _: SCOPE
    result = run("memory", *words, *WHERE, broker=network.url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert network.inputs(tool) == [SCOPE | session]


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        (("memory", "scratch", "list"), "memory-read"),
        (("memory", "task", "add", "check"), "memory-write"),
        (("memory", "history", "search", "tapes"), "memory-search"),
        (("call", "memory-read"), "memory-read"),
    ],
)
def test_a_tool_that_no_worker_offers_is_an_error_with_the_remedy(
    eight: Network, run: Run, words: tuple[str, ...], tool: str
) -> None:
    result = run(*words, broker=eight.url)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"error: no worker offers {tool}",
        "hint: Start the worker with --offer memory, or set SEARCH_OFFER=memory for it"
        " (config.yml: `offer: [memory]`).",
    ]


def test_without_any_worker_the_error_names_the_networks(run: Run) -> None:
    with played([]) as nobody:
        result = run("memory", "scratch", "list", broker=nobody.url)
    assert result.exit_code == 1
    assert "no provider for tool 'memory-read' on the networks searched: global" in result.stderr


def test_a_tool_that_no_extension_has_is_unknown(eight: Network, run: Run) -> None:
    result = run("call", "memory-forget", broker=eight.url)
    assert "no provider for tool 'memory-forget'" in result.stderr


def test_lists_are_tables_or_json(network: Network, run: Run) -> None:
    state = {
        "scratch": [{"key": "k", "value": "two\nlines", "updatedAt": MOMENT}],
        "tasks": [{"id": "1", "content": "check", "status": "open", "updatedAt": MOMENT}],
        "history": [{"role": "user", "content": "hello", "time": MOMENT, "turn": 1, "source": "s"}],
        "sessions": [{"sessionId": "mon", "updatedAt": MOMENT}],
    }
    network.answers["memory-read"] = lambda _: state
    for words, shown in (
        (("scratch", "list"), "2026-05-01 10:30"),
        (("task", "list", "--status", "open"), "1   open    check"),
        (("history", "list", "--limit", "5"), "2026-05-01 10:30  user  hello"),
    ):
        assert shown in run("memory", *words, *WHERE, broker=network.url).stdout
        listed = run("memory", *words, *WHERE, "--json", broker=network.url).stdout
        assert (
            json.loads(listed)
            == state[{"scratch": "scratch", "task": "tasks"}.get(words[0], words[0])]
        )
    asked = network.inputs("memory-read")
    assert asked[0] == SCOPE | {"include": ["scratch"]}
    assert asked[2] == SCOPE | {"include": ["tasks"], "status": "open"}
    assert asked[4] == SCOPE | {"include": ["history"], "limit": 5}
    text = run("memory", "scratch", "get", "k", broker=network.url).stdout
    assert text == "two\nlines\n"
    assert "mon" in run("memory", "sessions", "--agent", "ada", broker=network.url).stdout


def test_a_new_task_prints_its_id_and_text_comes_from_stdin(network: Network, run: Run) -> None:
    network.answers["memory-write"] = lambda _: {"tasks": [{"id": "7"}]}
    result = run("memory", "task", "add", "-", given="check tapes", broker=network.url)
    assert result.stdout == "7\n"
    assert network.inputs("memory-write")[0]["tasks"] == [{"content": "check tapes"}]


def test_history_is_searched_over_all_sessions_or_one(network: Network, run: Run) -> None:
    about = {"session": "mon", "role": "user", "time": MOMENT}
    hit = {"score": 0.5, "content": "backups run at two", "metadata": about}
    network.answers["memory-search"] = lambda _: {"results": [hit]}
    words = ("memory", "history", "search", "backups", "--agent", "ada")
    found = run(*words, broker=network.url)
    assert "0.500  mon      2026-05-01 10:30  user  backups run at two" in found.stdout
    network.answers["memory-search"] = lambda _: {"results": []}
    assert run(*words, "--session", "mon", broker=network.url).exit_code == 3
    asked = {"agentId": "ada", "query": "backups", "limit": 10}
    assert network.inputs("memory-search") == [
        asked,
        asked | {"sessionId": "mon"},
    ]


def test_erasure_is_confirmed_or_only_counted(network: Network, run: Run) -> None:
    counts = {"scratch": 1, "tasks": 0, "history": 12}
    network.answers["memory-delete"] = lambda _: counts
    words = ("memory", "erase", "--session", "*", "--before", "2026-01-01")
    assert run(*words, broker=network.url).exit_code == 2
    assert network.inputs("memory-delete") == []
    counted = run(*words, "--dry-run", broker=network.url).stdout
    assert counted == "would delete 1 key, 0 tasks, 12 turns\n"
    assert run(*words, "--yes", broker=network.url).stdout.startswith("deleted 1 key")
    asked = {"agentId": "default", "sessionId": "*", "before": "2026-01-01"}
    assert network.inputs("memory-delete") == [asked | {"dryRun": True}, asked]
