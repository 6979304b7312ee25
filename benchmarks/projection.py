"""What measured costs mean for collections of any size; ``python -m benchmarks.projection``.

A calculation, not a measurement: costs per query and chunk are extrapolated, and every query asks
every shard.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of chunks of 100 words and 384 dimensions."""

    database_ms: float = 8.7
    """Processor time of a hybrid query in a database of 20,000 chunks, in milliseconds."""
    database_ms_a_decade: float = 4.3
    """More of it for each tenfold of the chunks."""
    worker_ms: float = 7.3
    """Processor time of a hybrid query in the worker."""
    worker_ms_a_shard: float = 4.0
    """More of it for each further shard: reading its rows and merging."""
    broker_ms: float = 1.3
    """Processor time of a hybrid query in the brokers."""
    broker_ms_a_shard: float = 1.0
    load_ms: float = 1.6
    """Processor time of storing a chunk, without embedding."""
    embed_ms: float = 20.0
    """Processor time of embedding a chunk with all-MiniLM-L6-v2."""
    disk: float = 5_000
    """Bytes of a chunk on disk."""
    memory: float = 6_971
    """Bytes of a chunk in the heap of the engine, see :mod:`kadi_localnet.database.jvm`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has and costs."""

    cores: int = 8
    memory: float = 64e9
    """Bytes."""
    usable: float = 0.75
    """Share of memory and cores to plan with."""
    month: float = 250.0
    """Price in dollars: 8 cores, 64 GB and 500 GB of disk, rented by the month."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What a collection needs."""

    shards: int
    by_memory: int
    """Machines for the databases by their memory, by processor time and in all."""
    by_processor: int
    worker_machines: int
    broker_machines: int
    disk: float
    """Bytes in all."""
    load_days: float
    """Days to embed and store everything with all machines."""
    database_ms: float
    """Processor time of a query in one shard; the latency is more than this."""
    milliseconds: float
    """Processor time of a query in all parts."""
    dollars: float
    """A month."""


def projected(chunks: int, rate: float, costs: Costs, machine: Machine) -> Projection:
    """Return what ``chunks`` with ``rate`` hybrid queries a second need, one shard a machine."""
    by_memory = math.ceil(chunks * costs.memory / (machine.memory * machine.usable))
    cores = machine.cores * machine.usable

    def database_ms(shards: int) -> float:
        decades = math.log10(max(1.0, chunks / shards / 20_000))
        return costs.database_ms + costs.database_ms_a_decade * decades

    # Every query costs processor time in every shard, so more queries need copies of all shards.
    shards = by_memory
    copies = math.ceil(rate * database_ms(shards) / 1e3 / cores)
    worker = costs.worker_ms + costs.worker_ms_a_shard * (shards - 1)
    broker = costs.broker_ms + costs.broker_ms_a_shard * (shards - 1)
    workers = math.ceil(rate * worker / 1e3 / cores)
    brokers = math.ceil(rate * broker / 1e3 / cores)
    databases = shards * copies
    machines = databases + workers + brokers
    return Projection(
        shards=shards,
        by_memory=by_memory,
        by_processor=databases,
        worker_machines=workers,
        broker_machines=brokers,
        disk=chunks * costs.disk * copies,
        load_days=chunks * (costs.load_ms + costs.embed_ms) / 1e3 / (machines * cores) / 86_400,
        database_ms=database_ms(shards),
        milliseconds=shards * database_ms(shards) + worker + broker,
        dollars=machines * machine.month,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.projection", description=__doc__)
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000, 1_000_000_000]
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--month", type=float, default=Machine().month, help="dollars a machine")
    arguments = parser.parse_args()
    machine = Machine(month=arguments.month)
    print(
        "| chunks | queries/s | shards | databases | workers | brokers | disk TB | load days"
        " | processor ms a query | $ a month |"
    )
    print("|---" * 10 + "|")
    for chunks in arguments.chunks:
        for rate in arguments.rates:
            each = projected(chunks, rate, Costs(), machine)
            print(
                f"| {chunks:,} | {rate:g} | {each.shards} | {each.by_processor}"
                f" | {each.worker_machines} | {each.broker_machines} | {each.disk / 1e12:.2f}"
                f" | {each.load_days:.1f} | {each.milliseconds:,.0f} | {each.dollars:,.0f} |"
            )


if __name__ == "__main__":
    main()
