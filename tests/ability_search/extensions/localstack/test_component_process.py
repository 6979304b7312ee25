"""A child is any program that keeps the protocol: here a few lines of Python."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ability_search.extensions.localstack import component_process
from ability_search.extensions.localstack.component_process import (
    ComponentFailed,
    ComponentProcess,
    Guest,
    _ending,
)

SECONDS = 20.0
READY = """
import json, os, sys
print(json.dumps({"ready": {"pid": os.getpid(), "port": int(sys.argv[-1])}}), flush=True)
"""
HANGS_AT_FIRST = (
    READY
    + """
import asyncio, pathlib, threading
trace = pathlib.Path(sys.argv[1])
first = not trace.exists()
trace.touch()
async def beat():
    for _ in range(4):
        print(flush=True)
        await asyncio.sleep(0.1)
    while first:
        threading.Event().wait()
    while True:
        print(flush=True)
        await asyncio.sleep(0.1)
asyncio.run(beat())
"""
)
UNTIL_ASKED = READY + "sys.stdin.read()\nopen(sys.argv[1], 'a').write('stopped')\n"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    + READY
    + "\nwhile True: signal.pause()\n"
)


@asynccontextmanager
async def child(
    tmp_path: Path, program: str, **options: Any
) -> AsyncIterator[tuple[ComponentProcess, asyncio.Queue[str]]]:
    """Runs ``program`` where the real one would run the command line."""
    package = tmp_path / "ability_search"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(program)
    told: asyncio.Queue[str] = asyncio.Queue()

    def arguments(before: Mapping[str, object]) -> list[str]:
        return [str(tmp_path / "trace"), str(before.get("port", 0) or 1)]

    started = ComponentProcess(
        "part",
        arguments,
        lambda _: {**os.environ, "PYTHONPATH": str(tmp_path)},
        notify=told.put_nowait,
        changed=lambda: told.put_nowait("changed"),
        **{"ready_timeout": 30.0, **options},
    )
    try:
        yield started, told
    finally:
        await started.stop()


async def until(told: asyncio.Queue[str], wanted: Callable[[str], bool]) -> str:
    async with asyncio.timeout(SECONDS):
        while not wanted(line := await told.get()):
            pass
    return line


async def test_closing_its_input_stops_a_component(tmp_path: Path) -> None:
    async with child(tmp_path, UNTIL_ASKED) as (part, told):
        assert await part.start() == {"pid": part.pid, "port": 1}
    assert (tmp_path / "trace").read_text() == "stopped"
    assert told.empty()


async def test_a_killed_component_is_restarted_and_reported(tmp_path: Path) -> None:
    async with child(tmp_path, UNTIL_ASKED) as (part, told):
        first = (await part.start())["pid"]
        os.kill(first, signal.SIGKILL)
        ended = await until(told, lambda line: "ended" in line)
        assert "part was ended by SIGKILL; restarting in" in ended
        assert await until(told, lambda line: line == "changed")
        assert await until(told, lambda line: f"is back as process {part.pid}" in line)
        assert part.pid != first


async def test_a_component_that_was_up_for_a_while_is_restarted_at_once_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_process, "STABLE_SECONDS", 0.0)
    async with child(tmp_path, UNTIL_ASKED) as (part, told):
        await part.start()
        for _ in range(6):
            os.kill(part.pid, signal.SIGKILL)
            ended = await until(told, lambda line: "ended" in line)
            assert float(ended.rpartition(" in ")[2].removesuffix(" s")) <= 0.3
            await until(told, lambda line: "is back" in line)


@pytest.mark.slow
async def test_a_component_with_a_blocked_event_loop_is_killed_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ability_search.extensions.localstack.component_process.STOP_SECONDS", 0.1)
    async with child(tmp_path, HANGS_AT_FIRST, silence=1.5) as (part, told):
        first = (await part.start())["pid"]
        await until(told, lambda line: line == "part hangs: no sign of life for 1.5 s; killing it")
        assert "was ended by SIGKILL" in await until(told, lambda line: "ended by" in line)
        await until(told, lambda line: "is back" in line)
        second = part.pid
        assert second != first
        # The second one beats: it lives on for longer than it may be silent.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await until(told, lambda line: "hangs" in line)
        assert part.pid == second


async def test_a_reported_failure_is_raised(tmp_path: Path) -> None:
    program = """print('{"error": "no port", "hint": "Take another."}'); raise SystemExit(1)"""
    async with child(tmp_path, program) as (part, _):
        with pytest.raises(ComponentFailed, match="part: no port") as caught:
            await part.start()
        assert caught.value.hint == "Take another."


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "print('hello'); raise SystemExit(3)"])
async def test_exiting_before_the_report_is_an_error(tmp_path: Path, program: str) -> None:
    async with child(tmp_path, program) as (part, _):
        with pytest.raises(ComponentFailed, match="ended with exit code 3 before it was ready"):
            await part.start()


async def test_a_component_that_is_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    program = "import signal; signal.pause()"
    async with child(tmp_path, program, ready_timeout=0.5) as (part, _):
        with pytest.raises(ComponentFailed, match=r"was not ready in 0\.5 s") as caught:
            await part.start()
    assert "SEARCH_STACK_START_TIMEOUT" in caught.value.hint


async def test_a_component_that_ignores_termination_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ability_search.extensions.localstack.component_process.STOP_SECONDS", 0.1)
    monkeypatch.setattr("ability_search.extensions.localstack.component_process._KILL_SECONDS", 0.5)
    async with child(tmp_path, STUBBORN) as (part, _):
        pid = (await part.start())["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_restarts_are_retried_until_one_succeeds(tmp_path: Path) -> None:
    fails_twice = f"""
import json, os, pathlib, sys
trace = pathlib.Path(sys.argv[1])
start = len(trace.read_text()) if trace.exists() else 0
trace.write_text("x" * (start + 1))
if start in (1, 2):
    print(json.dumps({{"error": "not yet"}}))
    raise SystemExit(1)
{READY}
sys.stdin.read()
"""
    async with child(tmp_path, fails_twice) as (part, told):
        os.kill((await part.start())["pid"], signal.SIGKILL)
        for _ in range(2):
            assert await until(told, lambda line: line == "part: not yet")
            assert await until(told, lambda line: "part ended with exit code 1" in line)
        assert await until(told, lambda line: "is back" in line)


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("database", 3, "ended with exit code 3 (out of heap memory: increase arcadedb_heap"),
        ("database", 70, "ended with exit code 70 (the engine answered no call"),
        ("worker-1", 3, "ended with exit code 3;"),
        ("database", -9, "was ended by SIGKILL;"),
    ],
)
def test_an_exhausted_heap_is_named(name: str, code: int, text: str) -> None:
    assert f"{_ending(name, code)};".startswith(text)


async def test_later_output_never_blocks_a_component(tmp_path: Path) -> None:
    program = READY + "\nfor _ in range(20_000): print('x' * 100)\n"
    program += "open(sys.argv[1], 'w').write('through'); sys.stdin.read()\n"
    async with child(tmp_path, program) as (part, _):
        await part.start()
    assert (tmp_path / "trace").read_text() == "through"


HOSTS = (
    READY
    + """
import pathlib
fails = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    order = json.loads(line)
    print(flush=True)
    if name := order.get("run"):
        if order["environ"].get("FAILS") and not fails.exists():
            fails.touch()
            print(json.dumps({"of": name, "error": "no room", "hint": "Make some."}), flush=True)
            sys.exit(1)
        print(json.dumps({"of": name, "ready": {"pid": os.getpid(), **order}}), flush=True)
    else:
        print(json.dumps({"of": "another", "stopped": True}), flush=True)
        print(json.dumps({"of": order["stop"], "stopped": True}), flush=True)
"""
)


def guest(host: ComponentProcess, name: str, **environ: str) -> Guest:
    return Guest(name, lambda before: [name, str(len(before))], lambda _: environ, host)


async def test_guests_run_in_the_process_of_another_component(tmp_path: Path) -> None:
    async with child(tmp_path, HOSTS) as (part, told):
        before = (await part.start())["pid"]
        first, second = guest(part, "first", SECRET="s"), guest(part, "second")
        started = await asyncio.gather(first.start(), second.start())
        assert [each["pid"] for each in started] == [before, before]
        assert started[0]["arguments"] == ["first", "0"]
        assert started[0]["environ"] == {"SECRET": "s"}
        await second.stop()
        os.kill(before, signal.SIGKILL)
        assert await until(told, lambda line: "part (with first) was ended by SIGKILL" in line)
        assert await until(told, lambda line: "part (with first) is back as process" in line)
        assert first.pid == first.details["pid"] == part.pid != before
        assert first.details["arguments"] == ["first", "4"]  # it knows what it was before
        assert second.details["pid"] == before


async def test_a_guest_that_does_not_start_is_named(tmp_path: Path) -> None:
    async with child(tmp_path, HOSTS) as (part, _):
        await part.start()
        with pytest.raises(ComponentFailed, match="first: no room") as raised:
            await guest(part, "first", FAILS="yes").start()
        assert raised.value.hint == "Make some."
        with pytest.raises(ComponentFailed, match="second ended with exit code 1 before it was"):
            await guest(part, "second").start()


async def test_a_guest_that_fails_at_a_restart_is_started_again(tmp_path: Path) -> None:
    async with child(tmp_path, HOSTS) as (part, told):
        await part.start()
        (tmp_path / "trace").touch()
        first = guest(part, "first", FAILS="yes")
        await first.start()
        (tmp_path / "trace").unlink()
        os.kill(part.pid, signal.SIGKILL)
        assert await until(told, lambda line: line == "first: no room")
        assert await until(told, lambda line: "is back" in line)
        assert first.details["pid"] == part.pid
