"""The ports and settings of indexing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ability_search.config.schema import Settings
from ability_search.documents import Vector
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Chat, Embedder
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.text.token_counter import TokenCounter


@dataclass(frozen=True, slots=True)
class IndexPorts:
    """Ports and settings that the services of indexing share."""

    store: Store
    registry: Registry
    embedder: Embedder
    chat: Chat
    """The language model for deriving kinds."""
    settings: Settings
    counter: TokenCounter
    """Counts tokens; when its name changes, texts are chunked again."""
    now: Callable[[], int]
    """Returns the time in epoch milliseconds."""
    meter: Meter = UNMETERED

    async def embed(self, model: str, texts: Sequence[str]) -> Vector:
        """Embed texts with the timeout of the settings; raises as :meth:`.Embedder.embed`."""
        timeout = self.settings.embedding.index_timeout
        return await self.embedder.embed(model, texts, timeout=timeout)
