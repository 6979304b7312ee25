"""A machine with a running stack, and somebody who reads there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.built_models import lend_models
from tests.snippets import program
from tests.snippets.blocks import ROOT
from tests.snippets.reader import Machine, Reader

from ability_search.client import BlockingSearchClient


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    home = tmp_path_factory.mktemp("home")
    socket = home / "program"
    machine = Machine(home, home / "bin")
    (home / ".curlrc").write_text("fail-with-body\n", encoding="utf-8")
    lend_models(home)
    for name in ("ability-search", "python"):
        program.caller(socket, machine.programs / name)
    command = [sys.executable, "-m", "tests.snippets.program", str(socket)]
    served = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert served.stdout is not None
    try:
        assert served.stdout.readline(), "the program does not start"
        yield machine
    finally:
        os.killpg(served.pid, signal.SIGKILL)
        served.communicate()
        machine.stop()


@pytest.fixture
def reader(machine: Machine, tmp_path: Path) -> Iterator[Reader]:
    """With the stack up and no collection in it."""
    directory = tmp_path / "work"
    directory.mkdir()
    machine.up(directory)
    running = machine.running
    assert running is not None
    with BlockingSearchClient(running.url, networks=running.networks) as search:
        for each in search.collections().collections:
            search.delete(each.name)
    reader = Reader(machine, directory)
    try:
        yield reader
    finally:
        reader.leave()
