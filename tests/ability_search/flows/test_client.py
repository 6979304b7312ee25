"""The client for Python programs, against the real tools."""

from __future__ import annotations

import asyncio
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.ability_search.flows.conftest import Network

from ability_search.client import (
    BlockingSearchClient,
    DocumentInput,
    SearchClient,
    ToolError,
)
from ability_search.errors import InvalidInput

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibex", "jay", "koi", "lynx"]
ROOT = Path(__file__).parents[3]


def documents(count: int) -> list[dict[str, Any]]:
    return [
        {"source": f"d{n}", "title": f"Title {n}", "content": f"{WORDS[n]} and <b>pumps</b>"}
        for n in range(count)
    ]


async def test_every_tool(network: Network) -> None:
    told: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, stage: str) -> None:
        told.append((done, total, stage))

    async with SearchClient(network.url) as search:
        given = [DocumentInput(**each) for each in documents(12)]
        indexed = await search.index("docs", given, progress=progress, max_tokens=64)
        assert (indexed.added, indexed.chunks) == (12, 12)
        again = await search.index("docs", iter(documents(12)), max_tokens=64)
        assert again.unchanged == 12
        hits = await search.query("docs", "dog", limit=3, mode="keyword", explain=True)
        assert [hit.source for hit in hits.results] == ["d3"]
        assert hits.explain is not None
        near = await search.similar("docs", hits.results[0].chunk_id, limit=2)
        assert near.source_chunk == hits.results[0].chunk_id
        assert len(near.results) == 2
        assert [each.name for each in (await search.collections()).collections] == ["docs"]
        assert (await search.info("docs", limit=1)).source_count == 12
        assert [name async for name in search.sources("docs")] == sorted(f"d{n}" for n in range(12))
        assert (await search.reindex("docs", max_tokens=32)).documents == 12
        assert (await search.delete("docs", "d3")).deleted == 1
        assert (await search.call("search-delete", {"collection": "docs"}))["deleted"] == 11
    assert told
    assert all(total == 12 for _, total, _ in told)


async def test_a_job_of_an_extension_reports_its_progress(network: Network) -> None:
    told: list[tuple[int, int, str]] = []
    wanted = {"collection": "docs", "jobId": "ours"}
    async with SearchClient(network.url) as search:
        await search.index("docs", documents(12))
        analysis = await search.call(
            "notes-analyze", wanted, progress=lambda *event: told.append(event)
        )
    assert (analysis["chunks"], analysis["jobId"]) == (12, "ours")
    assert [stage for _, _, stage in told] == ["reading", "measuring", "storing"]


async def test_documents_are_sent_in_calls_of_bounded_size(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_MAX_BATCH_DOCUMENTS", "5")
    told: list[int] = []
    async with SearchClient(network.url) as search:
        given = [*documents(11), {"source": "e", "title": "", "content": " "}]
        indexed = await search.index("docs", given, progress=lambda done, *_: told.append(done))
        assert (indexed.documents, indexed.added) == (12, 11)
        assert [each.source for each in indexed.failed] == ["e"]
        with pytest.raises(ValueError, match="at least one"):
            await search.index("docs", [])
    assert max(told) > 5


async def test_what_fails_says_how_to_go_on(network: Network) -> None:
    search = SearchClient(network.url)
    with pytest.raises(RuntimeError, match="async with"):
        await search.collections()
    async with search:
        await search.index("docs", documents(1))
        with pytest.raises(ToolError) as failure:
            await search.query("dosc", "words")
        assert failure.value.code == "not_found"
        assert "docs" in failure.value.hint
        assert not failure.value.retryable
        with pytest.raises(ValidationError, match="maxResults"):
            await search.query("docs", "words", maxResults=3)  # type: ignore[call-arg]
        with pytest.raises(ValidationError, match="limit"):
            await search.query("docs", "words", limit=0)


async def test_without_a_loop_and_beside_one(network: Network) -> None:
    def work() -> list[str]:
        with BlockingSearchClient(network.url) as search:
            search.index("docs", documents(3))
            with pytest.raises(ToolError):
                search.info("other")
            found = search.query("docs", "bee", mode="keyword").results
            return [*(hit.source for hit in found), *search.sources("docs")]

    assert await asyncio.to_thread(work) == ["d1", "d0", "d1", "d2"]
    closed = BlockingSearchClient(network.url)
    closed.close()
    with pytest.raises(RuntimeError, match="with BlockingSearchClient"):
        closed.collections()


async def test_results_draw_themselves_in_a_notebook(network: Network) -> None:
    async with SearchClient(network.url) as search:
        await search.index("docs", documents(2))
        hits = await search.query("docs", "bee <script>")
        drawn = hits._repr_html_()
        assert "<script>" not in drawn
        assert "&lt;b&gt;pumps" in drawn
        assert drawn.count("<tr>") == hits.count + 1
        near = await search.similar("docs", hits.results[0].chunk_id)
        assert "Title" in near._repr_html_()
        assert "docs" in (await search.collections())._repr_html_()
        assert "dimensions" in (await search.info("docs"))._repr_html_()


def test_the_blocking_client_has_the_methods_of_the_other_without_await() -> None:
    own = {name for name in vars(SearchClient) if not name.startswith("_")} - {"over"}
    for name in own:
        blocking, waiting = getattr(BlockingSearchClient, name), getattr(SearchClient, name)
        taken, wanted = (inspect.signature(each).parameters for each in (blocking, waiting))
        assert taken == wanted
        assert not re.search(r"\b(await|async)\b", blocking.__doc__)


def test_generated_modules_are_as_generated() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "generate_client.py"))
    for file, text in script["generated"]().items():
        assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("field", ["source", "title", "content", "metadata", "links"])
async def test_half_a_character_is_refused_by_its_field(network: Network, field: str) -> None:
    half: dict[str, Any] = {"metadata": {"a": ["\ud800"]}, "links": [{"target": "\udfff"}]}
    given = {"source": "a", "content": "words", field: half.get(field, "a\ud83d")}
    async with SearchClient(network.url) as search:
        with pytest.raises((InvalidInput, ValidationError), match=rf"(?m)^{field}\b"):
            await search.index("docs", [given])
