"""Install the KADI client of the TypeScript agents, which tests/interop runs.

Its package is in no index: KADI_CORE names it. Where it or its dependencies cannot be had, one line
says why, and the exit code is 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CLIENT = Path("node_modules", "@kadi.build", "core", "package.json")
OLDEST_NODE = 18
"""Major version."""
SECONDS = 300
"""Limit for npm."""
BRIEF = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"]
"""Options by which npm gives up soon where there is no registry."""


class Missing(Exception):
    """Something that the installation needs."""


def main() -> int:
    """Install it; 0 if it is there afterwards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", help="a .tgz or an unpacked directory; may be empty")
    parser.add_argument("home", type=Path, help="directory to install into; replaced")
    parser.add_argument("node", type=Path, help="directory of the Node.js to prefer")
    arguments = parser.parse_args()
    try:
        package = find_package(arguments.package)
        install(package, arguments.home.resolve(), *find_node(arguments.node))
    except Missing as exc:
        sys.stderr.write(f"no KADI client for tests/interop, which skips its tests: {exc}\n")
        return 1
    return 0


def find_package(named: str) -> Path:
    """Return the path of the client's package.

    Raises:
        Missing: if it does not exist.
    """
    if not named:
        raise Missing("no package; KADI_CORE=<.tgz or directory> names it")
    package = Path(named).resolve()
    if not (package.is_file() or (package / "package.json").is_file()):
        raise Missing(f"KADI_CORE is neither a .tgz nor a directory with a package.json: {named}")
    return package


def find_node(preferred: Path) -> tuple[str, list[str]]:
    """Return the path of Node.js and the command of npm: the preferred ones, else the system's.

    Raises:
        Missing: if there are none, or they are too old.
    """
    npm = preferred / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if npm.is_file():
        node = str(preferred / "bin" / "node")
        return node, [node, str(npm)]
    node, system_npm = shutil.which("node") or "", shutil.which("npm") or ""
    if not node or not system_npm or major_version(node) < OLDEST_NODE:
        raise Missing(f"no Node.js {OLDEST_NODE} or later with npm")
    return node, [system_npm]


def major_version(node: str) -> int:
    """Return the first number of a Node.js' version; 0 if it does not run."""
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=SECONDS)
    found = re.match(r"v(\d+)", shown.stdout)
    return int(found[1]) if found else 0


def install(package: Path, home: Path, node: str, npm: list[str]) -> None:
    """Install the package and its dependencies; ``home/node`` becomes the Node.js to run them.

    Raises:
        Missing: if npm fails; the message ends with its last words.
    """
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    command = [*npm, "install", "--prefix", str(home), "--ignore-scripts", "--install-links"]
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    path = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    try:
        done = subprocess.run(
            [*command, *quiet, *BRIEF, str(package)],
            cwd=home,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as exc:
        raise Missing(f"npm took more than {SECONDS} s") from exc
    if done.returncode:
        first, *_ = [*done.stderr.splitlines(), f"npm ended with exit code {done.returncode}"]
        raise Missing(f"npm cannot install it: {first}")
    if not (home / CLIENT).is_file():
        raise Missing(f"{package.name} is another package")
    (home / "node").symlink_to(node)


if __name__ == "__main__":
    sys.exit(main())
