"""Show what ability-search does: start the stack, index two collections, search them, stop.

Everything goes through the command line, as at a prompt. The data lives in a temporary directory
and the ports are free ones, so that nothing of an installation is touched.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sysconfig.get_path("scripts")) / "ability-search"
READY_SECONDS = 120
STOP_SECONDS = 60
COMMAND_SECONDS = 300

MODULES = """
    argparse asyncio/locks asyncio/queues asyncio/runners asyncio/streams asyncio/taskgroups
    asyncio/tasks base64 bisect collections/__init__ concurrent/futures/_base contextlib csv
    dataclasses difflib email/message functools glob gzip hashlib heapq http/client inspect
    json/__init__ json/decoder json/encoder logging/__init__ pickle queue random shelve shutil
    smtplib socket socketserver statistics string subprocess tempfile textwrap threading timeit
    traceback urllib/parse urllib/request uuid weakref zipfile
"""
"""Modules of the standard library whose documentation is indexed."""


UNDERLINE = re.compile(r"^(=+|-+)$", re.MULTILINE)
Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Failed(Exception):
    """A command did not do what it should."""


def main() -> int:
    """Run the demonstration; 0 if every command did its work."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ability-search-demo-") as scratch:
        library = Path(scratch) / "stdlib"
        files = write_library(library)
        say(f"The documentation of {files} modules of Python is in {library}.")
        try:
            with running_stack(Path(scratch) / "data") as run:
                show(run, library)
        except Failed as exc:
            sys.stderr.write(f"error: {exc}\n")
            return 1
    say(f"\nThe demonstration took {time.monotonic() - began:.0f} s.")
    return 0


def show(run: "Runner", library: Path) -> None:
    """Index, look, search, index again, stop."""
    run("index", "README.md", "docs", "-c", "docs", "--include", "*.md")
    run("index", str(library), "-c", "python")
    run("collections")
    title("By meaning and by words")
    run("search", "how do I make a backup of my data", "-c", "docs", "-k", "2")
    title("By meaning")
    run(
        "search",
        "get rid of a folder and everything inside",
        "-c",
        "python",
        "-k",
        "2",
        "--semantic",
    )
    title("By words, exactly")
    run("search", "TimeoutExpired", "-c", "python", "-k", "2", "--keyword", "--highlights")
    title("In all collections, with the mode and the time of each step")
    run("search", "which errors can be retried", "-k", "2", "--debug")
    title("Only in some sources")
    run("search", "read from a socket", "-k", "2", "--source", "**/asyncio/*")
    title("What is indexed already costs nothing")
    run("index", str(library), "-c", "python")
    run("info", "docs")
    run("down")


class Runner:
    """Runs commands as a person would type them, and says how long each took."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def __call__(self, *arguments: str) -> None:
        """Run one command and show what it prints.

        Raises:
            Failed: if its exit code is not 0, or it does not end.
        """
        line = shlex.join(["ability-search", *arguments])
        say(f"\n$ {line}")
        began = time.monotonic()
        try:
            done = subprocess.run(
                [PROGRAM, *arguments], cwd=ROOT, env=self.environment, timeout=COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired as exc:
            raise Failed(f"{line} took more than {COMMAND_SECONDS} s") from exc
        if done.returncode != 0:
            raise Failed(f"{line} ended with exit code {done.returncode}")
        say(f"({time.monotonic() - began:.1f} s)")


def say(text: str) -> None:
    """Print a line at once, so that it stays in order with what the commands print."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def title(text: str) -> None:
    """A line above what comes."""
    say(f"\n--- {text} ---")


@contextmanager
def running_stack(data: Path, **settings: str) -> Iterator[Runner]:
    """The stack, up; it has to be down, or is stopped, when the block is left.

    Args:
        data: Its data directory.
        settings: Further variables of its environment.

    Raises:
        Failed: if it does not come up, or does not end with exit code 0.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SEARCH_", "BROKER_", "KADI_"))
    }
    environment |= {"SEARCH_DATA_DIR": str(data), "SEARCH_LOG_LEVEL": "warning", "COLUMNS": "100"}
    environment |= settings
    say("\n$ ability-search up --port 0 &")
    process = subprocess.Popen(
        [PROGRAM, "up", "--port", "0"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ready = threading.Event()
    reader = threading.Thread(target=_echo, args=(process, ready), daemon=True)
    reader.start()
    try:
        if not ready.wait(READY_SECONDS) or process.poll() is not None:
            raise Failed("the stack did not come up")
        yield Runner(environment)
        if _ended(process) != 0:
            raise Failed("the stack did not stop cleanly")
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        process.kill()
        process.wait()
        reader.join(timeout=5)


def _ended(process: subprocess.Popen[str]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(STOP_SECONDS)
    return None


def _echo(process: subprocess.Popen[str], ready: threading.Event) -> None:
    """Show what the stack prints; ``ready`` once it says so, or has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        say(f"  {line.rstrip()}")
        if line.startswith("ready"):
            ready.set()
    ready.set()


def write_library(target: Path, modules: str = MODULES) -> int:
    """One Markdown file for each of these modules that this Python has the source of; how many.

    Raises:
        Failed: if it has none.
    """
    library = Path(sysconfig.get_path("stdlib"))
    written = 0
    for name in modules.split():
        source = library / f"{name}.py"
        if not source.is_file():
            continue
        module = name.removesuffix("/__init__")
        file = target / f"{module}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        tree = ast.parse(source.read_text(encoding="utf-8"))
        file.write_text("\n\n".join(_sections(tree, module.replace("/", "."))), encoding="utf-8")
        written += 1
    if not written:
        raise Failed(f"no source of the standard library in {library}")
    return written


def _sections(node: ast.Module | Named, name: str, depth: int = 1) -> Iterator[str]:
    """The docstrings of a node and of what is public in it, under headings."""
    # An underlined line of a docstring would be a heading above the one it belongs under.
    text = UNDERLINE.sub("", ast.get_docstring(node) or "")
    if text:
        yield f"{'#' * depth} {name}\n\n{text}"
    for child in node.body:
        if isinstance(child, Named) and not child.name.startswith("_"):
            yield from _sections(child, f"{name}.{child.name}", min(depth + 1, 6))


if __name__ == "__main__":
    sys.exit(main())
