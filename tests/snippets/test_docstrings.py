"""The first example of each public docstring runs as it stands, on a running network."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from tests.kadi_client.deployer import approving, deployer
from tests.snippets.docstrings import EXAMPLES, PUBLIC, Example, first_example
from tests.snippets.prepared import texts
from tests.snippets.reader import Reader

from ability_search.client import BlockingSearchClient

pytestmark = [pytest.mark.engine, pytest.mark.model, pytest.mark.timeout(300)]

WITHOUT = {
    # Taken or returned by what has an example.
    *("Agent", "Call", "Endpoint", "Event"),
    *("CollectionInfo", "Collections", "Hits", "Neighbours"),
    # Its docstring is the description of an object in the schema of search-index.
    "DocumentInput",
    # `async with` calls them.
    *("SearchClient.open", "SearchClient.close"),
    *("BlockingSearchClient.open", "BlockingSearchClient.close"),
}
NOTES = [
    {"source": "n1", "title": "Backups", "content": "They run at two at night."},
    {"source": "n2", "title": "Pump", "content": "It is replaced in May."},
]


@pytest.mark.process
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
async def test_the_example_of_a_public_name_runs(example: Example, reader: Reader) -> None:
    texts(Reader(reader.machine, reader.machine.directory))
    running = reader.machine.running
    assert running is not None
    with BlockingSearchClient(running.url, networks=running.networks) as search:
        search.index("notes", NOTES)
    async with deployer(running.url, approving({"SEARCH_API_KEY": "sesame"}), *running.networks):
        printed = await asyncio.to_thread(reader.run_program, example.program)
    assert bool(printed.strip()) == ("print(" in example.code)


def test_every_public_name_to_start_from_has_an_example() -> None:
    started_from = {
        name: value
        for name, value in PUBLIC.items()
        if (inspect.isclass(value) and not issubclass(value, Exception))
        or (inspect.isfunction(value) and ("." not in name or "SearchClient." in name))
    }
    assert {name for name, value in started_from.items() if not first_example(value)} == WITHOUT
    names = {example.name for example in EXAMPLES}
    assert names >= {f"Connection.{each}" for each in ("invoke", "serve", "publish", "subscribe")}
