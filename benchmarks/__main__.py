"""Run the measurements and print them as JSON; ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from benchmarks import (
    analysis,
    growth,
    hop,
    idle,
    latency,
    neighbours,
    overhead,
    peers,
    scale,
    tree,
)

_ON_REQUEST = {
    "analysis": "it needs the extra analysis",
    "peers": "it installs packages",
    "scale": "it takes hours",
    "growth": "it kills processes and takes long",
}
"""Measurements that are made only if they are named, and why."""


def _measurements(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Return the measurements by name."""
    chunks, queries, rounds = arguments.chunks, arguments.queries, arguments.rounds
    return {
        "latency": lambda: latency.measure(chunks=chunks, queries=queries, rounds=rounds),
        "overhead": lambda: overhead.measure(chunks=arguments.texts, rounds=rounds),
        "tree": lambda: tree.measure(files=arguments.files),
        "idle": idle.measure,
        "hop": lambda: hop.measure(calls=queries, rounds=rounds),
        "neighbours": lambda: neighbours.measure(
            chunks=chunks, queries=queries, seconds=arguments.seconds
        ),
        "analysis": lambda: analysis.measure(chunks=chunks),
        "peers": lambda: peers.measure(chunks=chunks, queries=queries, rounds=rounds),
        "scale": lambda: scale.measure(sizes=arguments.sizes, queries=queries, rounds=rounds),
        "growth": lambda: growth.measure(chunks=chunks, seconds=arguments.seconds),
    }


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()}
    }
    for name, measure in _measurements(arguments).items():
        if arguments.only == name or (arguments.only is None and name not in _ON_REQUEST):
            measured = measure()
            report[name] = await measured if isawaitable(measured) else measured
    return report


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        choices=(
            *("latency", "overhead", "tree", "idle", "hop", "neighbours"),
            *_ON_REQUEST,
        ),
        help="one of them",
    )
    parser.add_argument("--chunks", type=int, default=20_000, help="chunks to search in")
    parser.add_argument("--queries", type=int, default=200, help="queries in a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--texts", type=int, default=512, help="chunks that are really embedded")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[100_000, 300_000, 1_000_000],
        help="chunks at each step of scale",
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="of each load of growth and neighbours"
    )
    parser.add_argument("--files", type=int, default=5_000, help="files of a directory")
    print(json.dumps(asyncio.run(_run(parser.parse_args())), indent=2))


main()
