from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mcp_types import ContentBlock, TextContent
from tests.ability_search.edge_network import Stage, playing
from tests.ability_search.flows.conftest import data_dir, network, start

__all__ = ["data_dir", "network", "stage", "start"]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with playing() as played:
        yield played


def text_of(content: ContentBlock) -> str:
    assert isinstance(content, TextContent)
    return content.text
