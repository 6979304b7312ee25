from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ability_search.client.running_stack import STATE, RunningStack
from ability_search.client.tool_client import (
    Target,
    find_target,
    joined_environ,
    progress_of,
    require_shared,
)
from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError, InvalidInput
from ability_search.extensions.localstack.supervisor import hold, write_running
from kadi_client import Connection, Tool
from kadi_localnet.broker import serve_broker

STACK = RunningStack(
    pid=os.getpid(),
    url="ws://127.0.0.1:4711/kadi",
    networks=("a", "b"),
    started="2026-01-02T03:04:05+00:00",
    model="m",
    environ={"SEARCH_EMBEDDING_MODEL": "m"},
)


def target(directory: Path, broker: str | None = None, **environ: str) -> Target:
    environ["SEARCH_DATA_DIR"] = str(directory / "data")
    return find_target(load_settings(environ, directory), environ, broker)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    with hold(tmp_path / "data"):
        write_running(tmp_path / "data", STACK)
        yield STACK
        (tmp_path / "data" / STATE).unlink(missing_ok=True)


def test_the_running_stack_is_found(tmp_path: Path, stack: RunningStack) -> None:
    found = target(tmp_path)
    assert (found.url, found.networks, found.stack) == (stack.url, stack.networks, stack)


def test_no_process_joins_a_stack_that_keeps_everything_in_memory(
    tmp_path: Path, stack: RunningStack
) -> None:
    require_shared(target(tmp_path))
    with pytest.raises(ConfigurationError, match="do not share the memory"):
        require_shared(target(tmp_path), memory=True)
    write_running(tmp_path / "data", replace(stack, memory=True))
    with pytest.raises(ConfigurationError, match="started with --memory"):
        require_shared(target(tmp_path))
    require_shared(target(tmp_path, "ws://elsewhere.example/kadi"), memory=True)


def test_a_stack_that_left_its_file_behind_is_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_running(tmp_path / "data", STACK)
    assert target(tmp_path).url == "ws://localhost:8080/kadi"


def test_the_command_line_wins_over_the_environment_and_that_over_the_stack(
    tmp_path: Path, stack: RunningStack
) -> None:
    environ = {"BROKER_URL": "ws://b.example/kadi"}
    assert target(tmp_path, **environ).url == "ws://b.example/kadi"
    assert target(tmp_path, "wss://c.example/kadi", **environ).url == "wss://c.example/kadi"
    with pytest.raises(InvalidInput, match="url"):
        target(tmp_path, "localhost:8080")


@pytest.mark.parametrize("name", ["remote", "local"])
def test_the_running_stack_wins_over_the_brokers_of_found_files(
    tmp_path: Path, name: str, stack: RunningStack
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[broker.{name}]\nURL = "wss://r.example/kadi"\n')
    assert target(tmp_path).url == stack.url
    (tmp_path / "data" / STATE).unlink(missing_ok=True)
    assert target(tmp_path).url == "wss://r.example/kadi"


def test_no_message_shows_the_credentials_of_an_address(tmp_path: Path) -> None:
    assert target(tmp_path, "ws://user:pass@h:1/kadi").shown == "ws://h:1/kadi"


def test_a_worker_that_joins_uses_the_model_of_the_stack_unless_told_otherwise(
    tmp_path: Path, stack: RunningStack
) -> None:
    environ = {"SEARCH_DATA_DIR": str(tmp_path / "data")}
    joined = joined_environ(load_settings(environ, tmp_path), environ)
    assert joined["BROKER_URL"] == stack.url
    assert joined["BROKER_NETWORKS"] == "a,b"
    assert joined["SEARCH_EMBEDDING_MODEL"] == "m"
    blank = {**environ, "SEARCH_EMBEDDING_MODEL": " "}  # counts as unset
    joined = joined_environ(load_settings(blank, tmp_path), blank)
    assert joined["SEARCH_EMBEDDING_MODEL"] == "m"
    environ["SEARCH_EMBEDDING_MODEL"] = "mine"
    assert (
        joined_environ(load_settings(environ, tmp_path), environ)["SEARCH_EMBEDDING_MODEL"]
        == "mine"
    )
    environ["BROKER_URL"] = "ws://b.example/kadi"
    assert joined_environ(load_settings(environ, tmp_path), environ) == environ


async def test_progress_is_believed_from_a_search_worker_only() -> None:
    async def unused(_input: object, _call: object) -> None:
        raise AssertionError("not called")

    seen: list[tuple[int, int, str]] = []
    async with (
        serve_broker(port=0) as broker,
        Connection(broker.url, tools=[Tool("search-index", "", {}, unused)]) as worker,
        Connection(broker.url) as stranger,
        Connection(broker.url) as caller,
        progress_of(caller, "j", lambda *event: seen.append(event)),
    ):
        for publisher, done in ((stranger, 7), (worker, 1), (stranger, 8), (worker, 2)):
            data = {"jobId": "j", "done": done, "total": 9, "stage": "store"}
            await publisher.publish("search.index.progress", data)
    assert seen == [(1, 9, "store"), (2, 9, "store")]
