"""The stores that the contract holds for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store


@pytest.fixture(params=["memory"])
async def store() -> AsyncIterator[Store]:
    """A new store."""
    yield MemoryStore()
