"""The command line and the client, imported once: each call is a fork of this process.

A page has dozens of commands, the example of a docstring is a program in Python, and importing
takes most of the time of each.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

from ability_search import client
from ability_search.extensions.cli.app import all_commands, main
from ability_search.extensions.evaluation import comparison, evaluator

LATER = (all_commands(), client, comparison, evaluator)
"""What is imported only by the commands and programs that need it."""

CALLER = """\
#!{python} -IS
import json, os, socket, sys
if {is_python} and not "".join(sys.argv[1:2]).endswith(".py"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as program:
    program.connect({path!r})
    socket.send_fds(program, [b"."], [0, 1, 2])
    given = {{"directory": os.getcwd(), "environment": dict(os.environ)}}
    given["words"] = [{name!r}, *sys.argv[1:]]
    program.sendall(json.dumps(given).encode())
    program.shutdown(socket.SHUT_WR)
    sys.exit((program.recv(1) or b"\\1")[0])
"""
"""What stands for a program on the path of a reader; python runs in a fork what is a file."""


def serve(path: str) -> None:
    """Take calls at a socket until killed; says so once it does."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            caller, _ = server.accept()
            with caller:
                if os.fork() == 0:
                    server.close()
                    _answer(caller)
                _reap()


def _answer(caller: socket.socket) -> None:
    """Be the program for one caller, with what that has open; does not return."""
    _, files, _, _ = socket.recv_fds(caller, 1, 3)
    given = json.loads(b"".join(iter(lambda: caller.recv(1 << 16), b"")))
    for target, file in enumerate(files):
        os.dup2(file, target)
    os.chdir(given["directory"])
    os.environ.clear()
    os.environ.update(given["environment"])
    code: object = 1
    try:
        _run(given["words"])
        code = 0
    except SystemExit as exc:
        code = exc.code
    except Exception:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        caller.sendall(bytes([code if isinstance(code, int) else 0 if code is None else 1]))
        os._exit(0)


def _run(words: list[str]) -> None:
    """Be the command line, or a program in Python, as the first word says."""
    if words[0] == "python":
        sys.argv = words[1:]
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv = words
        main()


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def caller(path: Path, at: Path) -> None:
    """Write the program that calls a socket."""
    at.parent.mkdir(parents=True, exist_ok=True)
    text = CALLER.format(
        python=sys.executable, path=str(path), name=at.name, is_python=at.name == "python"
    )
    at.write_text(text, encoding="utf-8")
    at.chmod(0o755)


if __name__ == "__main__":
    serve(sys.argv[1])
