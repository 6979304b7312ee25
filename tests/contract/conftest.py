"""The stores that the contract holds for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from ability_search.store.sharding import sharded
from kadi_client import Connection
from kadi_localnet.broker import serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

TIMEOUT = 60.0


@asynccontextmanager
async def arcadedb(directory: Path) -> AsyncIterator[ArcadeStore]:
    """A store in a new database of the embedded engine, over a broker."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(serve_broker("127.0.0.1", 0))
        engine = await stack.enter_async_context(EmbeddedDatabases(directory))
        await stack.enter_async_context(
            Connection(broker.url, name="database", role="ability", tools=database_tools(engine))
        )
        client = await stack.enter_async_context(Connection(broker.url, name="worker"))
        yield ArcadeStore(BrokerScripts(client.invoke, database="contract", timeout=TIMEOUT))


WHOLE = {
    # Of one database: the order of storage, and its revisions and logs.
    "test_switched_collection_is_on_the_generation_that_was_built",
    "test_old_generation_stays_readable_until_its_grace_is_over",
    "test_published_generation_is_a_collection",
    "test_dropping_a_generation_twice_is_harmless",
    "test_nothing_is_written_to_a_generation_that_was_switched",
    "test_replacement_reports_what_it_did",
    "test_equal_scores_keep_the_order_of_storage",
    "test_filter_leaves_out_chunks_before_the_limit",
    "test_changes_of_term_statistics_are_logged_in_order",
    "test_folded_term_statistics_are_one_entry",
    "test_vectors_are_checked_page_by_page",
    "test_documents_of_others_are_ordinary_sources",
    "test_scores_of_an_analysis_are_stored_with_the_chunks",
    "test_stored_vectors_are_found_by_key",
    "test_map_shows_the_chunks_of_the_least_keys",
    "test_probed_chunks_are_the_newest_and_others_by_their_keys",
    # Near-duplicates are found within one database.
    "test_chunks_are_stored_whole",
    "test_first_duplicate_stands_in_for_others_when_their_stand_in_goes",
    "test_duplicates_that_go_are_no_longer_counted",
    "test_duplicates_replaced_with_their_stand_in_stay_duplicates",
    "test_duplicates_are_not_found",
    "test_no_duplicate_is_left_without_a_stand_in_by_a_writer_that_knows_of_none",
    "test_duplicates_follow_the_text_of_their_stand_in_or_what_is_near",
    "test_duplicates_are_found_if_the_filter_excludes_their_stand_in",
    "test_nothing_is_written_if_a_stand_in_has_changed",
    "test_sampled_chunks_are_indexed_and_have_embeddings",
    "test_outdated_weights_are_listed_by_chunk_id",
    "test_weights_of_a_chunk_that_became_a_duplicate_stay",
    "test_best_chunk_of_each_source_is_found",
}
"""Tests of what is not so in a split collection; see ``test_split_stores.py`` for what is."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        names = ["memory", "sharded"]
        names += [] if metafunc.function.__name__ in WHOLE else ["split"]
        engine = pytest.param("arcadedb", marks=pytest.mark.engine)
        metafunc.parametrize("store", [*names, engine], indirect=True)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store."""
    match request.param:
        case "memory":
            yield MemoryStore()
        case "sharded":
            yield sharded(memories())
        case "split":
            yield sharded(memories(), ["*"])
        case _:
            async with arcadedb(tmp_path) as found:
                yield found


def memories() -> dict[str, MemoryStore]:
    return {name: MemoryStore() for name in "abc"}
