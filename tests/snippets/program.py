"""The command line, imported once: each call is a fork of this process.

A page has dozens of commands, and importing the program takes most of the time of each.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from ability_search.extensions.cli.app import all_commands, main
from ability_search.extensions.evaluation import comparison, evaluator

LATER = (all_commands(), comparison, evaluator)
"""What is imported only by the commands that need it."""

CALLER = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as program:
    program.connect({path!r})
    socket.send_fds(program, [b"."], [0, 1, 2])
    given = {{"words": sys.argv[1:], "directory": os.getcwd(), "environment": dict(os.environ)}}
    program.sendall(json.dumps(given).encode())
    program.shutdown(socket.SHUT_WR)
    sys.exit((program.recv(1) or b"\\1")[0])
"""
"""What stands for the program on the path of a reader."""


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
    sys.argv = ["ability-search", *given["words"]]
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as exc:
        code = exc.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        caller.sendall(bytes([code if isinstance(code, int) else 0 if code is None else 1]))
        os._exit(0)


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
    at.write_text(CALLER.format(python=sys.executable, path=str(path)), encoding="utf-8")
    at.chmod(0o755)


if __name__ == "__main__":
    serve(sys.argv[1])
