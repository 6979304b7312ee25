"""Run the measurements and print them as JSON; ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from typing import Any

from benchmarks import analysis, growth, hop, latency, neighbours, overhead, peers, scale, tree


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()}
    }
    if arguments.only in (None, "latency"):
        report["latency"] = await latency.measure(
            chunks=arguments.chunks, queries=arguments.queries, rounds=arguments.rounds
        )
    if arguments.only in (None, "overhead"):
        report["overhead"] = await overhead.measure(chunks=arguments.texts, rounds=arguments.rounds)
    if arguments.only in (None, "tree"):
        report["tree"] = await tree.measure(files=arguments.files)
    if arguments.only in (None, "hop"):
        report["hop"] = await hop.measure(calls=arguments.queries, rounds=arguments.rounds)
    if arguments.only in (None, "neighbours"):
        report["neighbours"] = await neighbours.measure(
            chunks=arguments.chunks, queries=arguments.queries, seconds=arguments.seconds
        )
    if arguments.only == "analysis":  # only on request: it needs the extra analysis
        report["analysis"] = analysis.measure(chunks=arguments.chunks)
    if arguments.only == "peers":  # only on request: it installs packages
        report["peers"] = await peers.measure(
            chunks=arguments.chunks, queries=arguments.queries, rounds=arguments.rounds
        )
    if arguments.only == "scale":  # only on request: it takes hours
        report["scale"] = await scale.measure(
            sizes=arguments.sizes, queries=arguments.queries, rounds=arguments.rounds
        )
    if arguments.only == "growth":  # only on request: it kills processes and takes long
        report["growth"] = await growth.measure(chunks=arguments.chunks, seconds=arguments.seconds)
    return report


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        choices=[
            *("latency", "overhead", "tree", "hop", "neighbours"),
            *("peers", "scale", "growth", "analysis"),
        ],
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
