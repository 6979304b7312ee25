"""A reader who does what a page says, line by line, on a machine where nothing runs at first."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from tests.snippets.blocks import ROOT

from ability_search.client.running_stack import RunningStack, read_running

SECONDS = 60.0
UP = "ability-search up"
GATEWAY = "http://127.0.0.1:8070"
_STREAM = "ability_search_gateway_streams_open 1"
STAYING = {
    "gateway": "ready:",
    "up": "ready in",
    "watch": "added",
    "worker": "ready:",
}
"""Commands that run until they are stopped, and what they say once they are at work."""
TYPED = {"secret": "sesame\n"}
"""What is typed when a command asks."""
_MINE = ("SEARCH_", "BROKER_", "KADI_", "XDG_")
_BEFORE = 'set -euo pipefail; [ ! -e "$STATE" ] || . "$STATE"\n'
_AFTER = '\ncode=$?; { export -p; echo "cd $PWD"; } > "$STATE"; exit $code'
"""Where a reader is, and what is exported, holds for the rest of the page."""


def without_numbers(text: str) -> str:
    """What stays of a line when sizes, scores and times are other ones."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "#", text)).strip()


def scores(text: str) -> list[float]:
    """The numbers of a line that look like scores: between 0 and 1, with two decimals or more."""
    return [float(each) for each in re.findall(r"(?<![\w.,])0?\.\d{2,}(?![\w.,]*\d)", text)]


def words(line: str) -> list[str]:
    """The program and its arguments, without assignments before it."""
    found = shlex.split(line, comments=True)
    while found and re.match(r"[A-Z_]+=", found[0]):
        found.pop(0)
    return found


@dataclass
class Machine:
    """A home directory, the programs on the path, and the stack that `ability-search up` starts."""

    home: Path
    programs: Path
    directory: Path = Path()
    """Where the stack was started."""
    stack: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_MINE)}
        return {
            **kept,
            "HOME": str(self.home),
            "STATE": str(self.home / "none"),
            "PATH": os.pathsep.join(
                [str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "SEARCH_LOCAL_BROKER_PORT": "0",
            "SEARCH_GATEWAY_PORT": "0",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    @property
    def running(self) -> RunningStack | None:
        return read_running(self.home / ".local" / "share" / "ability-search")

    def up(self, directory: Path, line: str = UP) -> None:
        """What `ability-search up` does; nothing if the stack runs and is not to be another."""
        if self.running is None or shlex.split(line, comments=True) != UP.split():
            self.stop()
            self.directory = directory
            self.stack, _ = start(line, directory, self.environment)

    def stop(self) -> None:
        if self.stack is not None:
            if self.running is not None:
                self.stack.send_signal(signal.SIGINT)
            end(self.stack)
            self.stack = None

    def addresses(self) -> dict[str, str]:
        """What the pages call the addresses of the stack, and what they are here.

        Its metrics are at free ports if nothing is said of them.
        """
        running = self.running
        if running is None:
            return {}
        parts = {part.name: part.address for part in running.parts}
        metrics = {part.name: part.metrics.removesuffix("/metrics") for part in running.parts}
        models = urlsplit(parts["models"])
        return {
            "ws://localhost:8080/kadi": str(running.url),
            GATEWAY: parts["gateway"],
            "http://127.0.0.1:8090": f"{models.scheme}://{models.netloc}",
            "http://127.0.0.1:9401": metrics["broker"],
            "up --metrics-port 9401": "up",
            "SEARCH_METRICS_PORT=9401": "SEARCH_METRICS_PORT=0",
        }


def start(
    line: str, directory: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[str], str]:
    """Start a command that stays; it, and what it says once it is at work."""
    program = f"{shlex.quote(sys.executable)} -m ability_search"
    process = subprocess.Popen(
        ["bash", "-c", _BEFORE + re.sub(r"\bability-search\b", f"exec {program}", line, count=1)],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for shown in process.stdout:
        said.append(shown)
        if STAYING[words(line)[1]] in shown:
            return process, shown
    raise AssertionError(f"{line} ended: {''.join(said)}")


def end(process: subprocess.Popen[str]) -> None:
    """Wait for a command that was told to stop."""
    try:
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode in (0, 130), process.args


@dataclass
class Reader:
    """Somebody at a prompt of the machine, in a directory of a page's own."""

    machine: Machine
    directory: Path
    staying: list[subprocess.Popen[str]] = field(default_factory=list)
    behind: list[subprocess.Popen[str]] = field(default_factory=list)
    gateway: str | None = None
    """Address of a gateway that was started by itself."""

    @property
    def environment(self) -> dict[str, str]:
        return {**self.machine.environment, "STATE": str(self.directory.with_suffix(".state"))}

    def run(self, line: str) -> str:
        """What a command prints; it has to succeed."""
        if words(line)[0] == "make":
            line = f"{line.replace('make', f'make -C {ROOT} --dry-run PYTHON=python3', 1)}"
        for called, address in self._addresses().items():
            line = line.replace(called, address)
        if line.endswith("&"):
            self._send_behind(line.removesuffix("&"))
            return ""
        asked = words(line)
        if asked[:2] == UP.split():
            self.machine.up(self.directory, line)
            return ""
        if asked[0] == "ability-search" and asked[1] in STAYING:
            self._stay(line)
            return ""
        return self._printed(line, TYPED.get(asked[1], "") if asked[1:] else "")

    def run_program(self, text: str) -> str:
        """What a program in Python prints."""
        for called, address in self._addresses().items():
            text = text.replace(called, address)
        (self.directory / "page.py").write_text(text, encoding="utf-8")
        return self.run("python page.py")

    def _addresses(self) -> dict[str, str]:
        known = self.machine.addresses()
        return {**known, GATEWAY: self.gateway} if self.gateway else known

    def _stay(self, line: str) -> None:
        process, said = start(line, self.directory, self.environment)
        self.staying.append(process)
        if words(line)[1] == "gateway":
            address = said.rpartition(" ")[2].strip()
            self.gateway = address.replace("0.0.0.0", "127.0.0.1")

    def _send_behind(self, line: str) -> None:
        """Start a command beside the next ones; its stream is open before they begin."""
        self.behind.append(self._shell(line))
        ends = time.monotonic() + SECONDS
        address = self._addresses()[GATEWAY]
        while "/events" in line and _STREAM not in httpx.get(f"{address}/metrics").text:
            assert time.monotonic() < ends, line
            time.sleep(0.05)

    def _printed(self, line: str, typed: str) -> str:
        process = self._shell(line)
        try:
            out, err = process.communicate(typed, timeout=SECONDS)
        finally:
            process.kill()
        assert process.returncode == 0, f"$ {line}\n{out}\n{err}"
        return out

    def _shell(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", _BEFORE + line + _AFTER],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish_block(self) -> None:
        """Wait for what was sent to the background."""
        while self.behind:
            process = self.behind.pop()
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, f"{process.args!r}\n{out}\n{err}"
            assert out, process.args

    def leave(self) -> None:
        """Stop what stays."""
        while self.staying:
            self.staying[-1].send_signal(signal.SIGINT)
            end(self.staying.pop())
