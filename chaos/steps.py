"""The steps of a campaign, each made from the seed and its number alone."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.texts import VERSIONS

Parameters = dict[str, Any]

SOURCES = ("s0", "guide/s 1.md", "s2", "notes/ä-3.md", "s4", "o'5?#.md", "s6", "%7B7%7D")
FILES = ("f0.md", "sub/f1.md", "sub/f2.md", "f3.md")
TRANSPORTS = ("kadi", "kadi", "http", "mcp")
MODES = ("semantic", "keyword", "hybrid")

COMPONENTS = ("broker", "database", "models", "worker-1", "gateway")
WORKERS = 2
CUTS = ("cut", "slow", "hold")
SHORT = (*(f"kill-{name}" for name in COMPONENTS), "pause", *CUTS)
DEFAULT = (*SHORT, "kill-supervisor", "disk-full", "second-database", "squatters")
DENSE = ("burst", "kill-supervisor", "disk-full", "cut", "squatters")
EVERY = (*DEFAULT, "burst")
GROUPS: Mapping[str, Sequence[str]] = {
    "none": (),
    "short": SHORT,
    "default": DEFAULT,
    "dense": DENSE,
}
BURST_SECONDS = (0.8, 1.6, 3.2, 6.4)
"""Longest time between two kills of a burst."""
BURST_WEIGHT = 24
"""How much more often a burst is drawn than each other fault, if it is among the chosen."""


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        actor: ``client-N``, ``faults``, ``attacks`` or ``inputs``.
        number: Number among the steps of its actor, from 0.
        operation: What it does.
        parameters: With what.
    """

    actor: str
    number: int
    operation: str
    parameters: Parameters

    @property
    def digest(self) -> str:
        """Return a short hash of the operation and its parameters."""
        text = json.dumps([self.operation, self.parameters], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def chosen_faults(text: str) -> tuple[str, ...]:
    """Return the faults of a list of names and groups, separated by commas.

    Raises:
        ValueError: if a name is neither a fault nor a group.
    """
    found: dict[str, None] = {}
    for name in filter(None, (each.strip() for each in text.split(","))):
        members = GROUPS.get(name, (name,))
        if not set(members) <= set(EVERY):
            known = ", ".join((*GROUPS, *EVERY))
            raise ValueError(f"no fault {name!r}; there are: {known}")
        found.update(dict.fromkeys(members))
    return tuple(found)


def client_step(seed: int, client: int, number: int) -> Step:
    """Return a step of a client."""
    chance = random.Random(f"{seed}/client-{client}/{number}")
    names = list(_OPERATIONS)
    (operation,) = chance.choices(names, [weight for weight, _ in _OPERATIONS.values()])
    plain = f"c{client}-{chance.choice('ab')}"
    parameters = {
        "collection": plain,
        "transport": chance.choice(TRANSPORTS),
        **_OPERATIONS[operation][1](chance),
    }
    if operation == "index-file":
        parameters["collection"] = f"c{client}-f"
    return Step(f"client-{client}", number, operation, parameters)


def fault_step(seed: int, number: int, faults: Sequence[str]) -> Step:
    """Return a fault; ``gap`` is the number of steps of clients to wait for before it."""
    chance = random.Random(f"{seed}/faults/{number}")
    weights = [BURST_WEIGHT if name == "burst" else 1 for name in faults]
    (operation,) = chance.choices(faults, weights)
    if operation == "burst":
        longest = chance.choice(BURST_SECONDS)
        kills = [
            [chance.choice((*COMPONENTS, "worker-2")), round(chance.uniform(0.1, longest), 1)]
            for _ in range(chance.randint(15, 60))
        ]
        return Step("faults", number, operation, {"gap": chance.randint(2, 6), "kills": kills})
    return Step(
        "faults",
        number,
        operation,
        {
            "gap": chance.randint(5, 40),
            "seconds": round(chance.uniform(0.5, 8.0), 1),
            "component": chance.choice(COMPONENTS),
            "proxy": chance.choice(("broker", "gateway")),
            "private": chance.random() < 0.5,
        },
    )


def attack_step(seed: int, number: int, attacks: Sequence[str]) -> Step:
    """Return an attack; ``gap`` is the number of steps of clients to wait for before it."""
    chance = random.Random(f"{seed}/attacks/{number}")
    gap, draw = chance.randint(2, 8), chance.randrange(2**32)
    return Step("attacks", number, chance.choice(attacks), {"gap": gap, "seed": draw})


def input_step(seed: int, number: int, batches: Sequence[str]) -> Step:
    """Return a batch of hostile inputs."""
    chance = random.Random(f"{seed}/inputs/{number}")
    return Step("inputs", number, chance.choice(batches), {"seed": chance.randrange(2**32)})


def _index(chance: random.Random) -> Parameters:
    sources = chance.sample(SOURCES, chance.choice((1, 1, 2, 4)))
    return {
        "documents": {source: chance.randrange(VERSIONS) for source in sources},
        "blank": chance.choice(SOURCES) if chance.random() < 0.1 else None,
        "link": chance.choice(SOURCES) if chance.random() < 0.3 else None,
        "kinds": ["title", "summary"] if chance.random() < 0.1 else [],
        "maxTokens": chance.choice((64, 128)),
        "force": chance.random() < 0.05,
    }


def _index_file(chance: random.Random) -> Parameters:
    kept = chance.sample(FILES, chance.randint(1, len(FILES)))
    return {"files": {name: chance.randrange(VERSIONS) for name in kept}}


def _query(chance: random.Random) -> Parameters:
    options: list[Parameters] = [
        {},
        {"filter": {"metadata.even": True}},
        {"filter": {"$or": [{"metadata.version": {"$gte": 2}}, {"source": "s0"}]}},
        {"sources": ["s*"], "highlights": True},
        {"excludeSources": ["guide/**"], "explain": True},
        {"diversity": 0.5, "maxPerSource": 1},
        {"expand": "neighbors", "maxResultTokens": 200},
        {"prf": True},
        {"graph": {"hops": 1}},
        {"extended": ["title", "documents"]},
        {"decay": {"halfLifeDays": 30}},
        {"fullText": {"weight": 0.3}},
    ]
    return {
        "source": chance.choice(SOURCES),
        "mode": chance.choice(MODES),
        "limit": chance.choice((1, 5, 20)),
        "options": chance.choice(options),
        "everywhere": chance.random() < 0.1,
    }


def _source(chance: random.Random) -> Parameters:
    return {"source": chance.choice(SOURCES)}


def _reindex(chance: random.Random) -> Parameters:
    return {
        "maxTokens": chance.choice((64, 128, 256)),
        "way": chance.choice(("wait", "wait", "background", "cancel")),
    }


def _transfer(chance: random.Random) -> Parameters:
    return {"corrupt": chance.random() < 0.4, "seed": chance.randrange(2**32)}


def _nothing(_: random.Random) -> Parameters:
    return {}


_OPERATIONS: Mapping[str, tuple[int, Callable[[random.Random], Parameters]]] = {
    "index": (28, _index),
    "index-file": (4, _index_file),
    "query": (24, _query),
    "similar": (7, _source),
    "delete": (7, _source),
    "delete-collection": (1, _nothing),
    "reindex": (5, _reindex),
    "collections": (2, _nothing),
    "info": (3, _nothing),
    "verify": (4, _nothing),
    "transfer": (1, _transfer),
}
"""Operations of clients: their weight and what makes their parameters."""
