from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ability_search.client.running_stack import RunningComponent, RunningStack, read_running
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.supervisor import (
    hold,
    is_abandoned,
    released,
    write_running,
)

STACK = RunningStack(
    pid=os.getpid(),
    url="ws://127.0.0.1:1/kadi",
    networks=("global",),
    started="2026-01-02T03:04:05+00:00",
    parts=(RunningComponent("broker", 7, "ws://127.0.0.1:1/kadi"),),
)


def test_the_running_stack_is_read_back_while_the_directory_is_locked(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    assert read_running(data) is None
    with hold(data):
        assert read_running(data) is None
        write_running(data, STACK)
        assert read_running(data) == STACK
        assert not is_abandoned(data)
    assert read_running(data) is None
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    data.chmod(0o755)
    with hold(data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700, "an existing one is closed to others"


def test_the_error_for_a_locked_directory_names_the_holder(tmp_path: Path) -> None:
    with hold(tmp_path):
        with pytest.raises(ConfigurationError, match="which is starting"), hold(tmp_path):
            pass
        write_running(tmp_path, STACK)
        with pytest.raises(ConfigurationError, match=f"process {os.getpid()}"), hold(tmp_path):
            pass
    with hold(tmp_path):
        pass


def test_a_directory_locked_by_children_of_a_dead_parent_is_abandoned(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with hold(tmp_path):
        write_running(tmp_path, RunningStack(ended.pid, "ws://h/kadi", ("a",), "now"))
        assert is_abandoned(tmp_path)
    assert not is_abandoned(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"parts": 1, "networks": []}'])
def test_a_damaged_state_file_is_ignored(tmp_path: Path, content: str) -> None:
    with hold(tmp_path):
        (tmp_path / "stack.json").write_text(content)
        assert read_running(tmp_path) is None


async def test_waiting_for_release_ends(tmp_path: Path) -> None:
    with hold(tmp_path):
        assert not await released(tmp_path, timeout=0.05)
    assert await released(tmp_path, timeout=5)


def test_a_directory_that_cannot_be_created_is_an_error_that_names_the_option(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError) as caught, hold(tmp_path / "file" / "data"):
        pass
    assert "--data-dir" in caught.value.hint
