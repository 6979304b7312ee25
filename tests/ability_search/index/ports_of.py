"""Ports of indexing over a store, without models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ability_search.collection import Collection, Recipe
from ability_search.config.loader import load_settings
from ability_search.index.index_calls import IndexJob, IndexReport
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.text.token_counter import EstimatedTokens


def index_ports(store: Store, *, now: int) -> IndexPorts:
    """Ports whose clock stands at ``now``; their models must not be used."""
    nobody: Any = None
    counter = EstimatedTokens()
    registry = Registry(store)
    settings = load_settings({"HOME": "/nowhere"}, Path("/nowhere"))
    return IndexPorts(store, registry, nobody, nobody, settings, counter, lambda: now)


def job_of(ports: IndexPorts, collection: Collection | None, recipe: Recipe) -> IndexJob:
    """A call that writes to the collection ``docs``; nobody hears of its progress."""

    async def unheard(*_progress: object) -> None:
        """Discard the progress."""

    job = IndexJob(ports, "docs", (), IndexFields(), False, IndexReport("docs", 0, "m"), unheard)
    job.collection, job.recipe = collection, recipe
    return job
