"""The console in a real browser, before the real worker and engine or before tools a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from docx import Document as Office
from pydantic import SecretStr
from tests.ability_search.edge_network import SECONDS, TOKEN, Stage, opened, settings_for, soon
from tests.ability_search.extensions.answers.chat_server import chat_server
from tests.ability_search.extensions.gateway.browser import BLANK, Browser, chromium
from tests.ability_search.flows.conftest import Network, Start, document, down

from ability_search.extensions.gateway.gateway_command import open_gateway

pytestmark = pytest.mark.process

TAB, ESCAPE, ENTER = "\ue004", "\ue00c", "\ue007"
LEFT, RIGHT = "\ue012", "\ue014"
DISK = "\N{FLOPPY DISK}"
HARMFUL = "<img src=x onerror=document.title='harmed'>"
SUMMARY = {
    "chunks": 3,
    "minTokens": 4,
    "maxTokens": 90,
    "avgTokens": 33.3,
    "model": "words-64",
    "dimensions": 64,
    "updatedAt": "2026-11-21T12:00:00Z",
}
COLLECTION = {"name": "notes", "sources": 120, **SUMMARY}
INFO = {
    "collection": "notes",
    "sourceCount": 120,
    "similarity": "cosine",
    "language": "english",
    "generation": 1,
    "state": "ready",
    "embeddedPercent": 100.0,
    "createdAt": "2026-11-21T12:00:00Z",
    **SUMMARY,
}
OVERVIEW = {name: INFO[name] for name in ("collection", "createdAt", "updatedAt")}
FIGURES = {
    "tokens": {
        "bins": [
            {"minTokens": 0, "maxTokens": 49, "chunks": 2},
            {"minTokens": 50, "maxTokens": 99, "chunks": 1},
        ],
        "counted": 3,
        "sampled": True,
    },
    "growth": {
        "unit": "month",
        "periods": [
            {"start": "2026-01-01T00:00:00.000Z", "sources": 40, "chunks": 1},
            {"start": "2026-11-01T00:00:00.000Z", "sources": 80, "chunks": 2},
        ],
    },
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driven:
        yield driven


@pytest.fixture
def browser(driver: Any) -> Iterator[Browser]:
    page = Browser(driver)
    page.requested()
    page.complaints()
    yield page
    driver.get(BLANK)
    assert page.complaints() == []
    assert {urlsplit(url).hostname for url in page.requested()} == {"127.0.0.1"}


def files(home: Path) -> str:
    """Files as a reader chooses them; one of them is no text."""
    contents = {
        "backups.md": f"# Backups\n\n{DISK} Backups run at two in the morning. {HARMFUL}\n",
        "bread.html": "<title>Loaf</title><script>var x</script><h1>Bread</h1><p>It rests</p>"
        "a <b>lot</b><ul><li>flour<li>salt</ul><table><tr><td>1<td>2</table><pre>a\n  b</pre>",
        "prices.csv": "item,price\nflour,2\nsalt,1\n",
        "people.json": '[{"name": "Ada", "job": "mathematician"}]',
    }
    for name, content in contents.items():
        (home / name).write_text(content, encoding="utf-8")
    (home / "old.tar.gz").write_bytes(b"\x1f\x8b\x08\0")
    report = Office()
    report.add_heading("Harvest", 1)
    report.add_paragraph("Apples ripen in September.")
    report.save(str(home / "harvest.docx"))
    (home / "large.txt").write_text("x" * 2000, encoding="utf-8")
    names = ("large.txt", *contents, "harvest.docx", "old.tar.gz")
    return "\n".join(str(home / name) for name in names)


@pytest.mark.engine
async def test_files_are_indexed_found_explained_and_deleted(
    start: Start, tmp_path: Path, browser: Browser
) -> None:
    async with (
        start(SEARCH_MAX_DOCUMENT_BYTES="1KiB") as network,
        opened(network.settings) as url,
    ):
        await browser.go(f"{url}/#index")
        await index(network, browser, tmp_path)
        await look_at_collections(browser)
        await search(browser)
        await look_at_similar(browser)
        await degrade(network, browser)
        await look_at_network(browser)
        await delete(browser)
        assert await browser.run("return document.title") == "ability-search"
    await browser.run("location.hash = '#search?q=bread&limit=3&mode=hybrid'")
    await browser.until("document.getElementById('query').value === 'bread'")
    assert await browser.run("return document.getElementById('limit').selectedIndex") >= 0


async def index(network: Network, browser: Browser, home: Path) -> None:
    chosen = files(home)
    network.model.gate = asyncio.Event()
    await browser.shows("#state", "all components up")
    await browser.keys("#files", chosen)
    await browser.shows("#index-message", "Enter a collection name")
    valid = "const target = document.querySelector('#target'); target.value = arguments[0];"
    for name, good in (
        ("हिन्दी-böden", True),
        ("会议", True),
        ("a b", False),
        ("-a", False),
        ("", False),
    ):
        assert await browser.run(f"{valid} return target.checkValidity()", name) is good
    await browser.keys("#target", "notes")
    await browser.keys("#files", chosen)
    await browser.shows(".job", "0 of 5 documents")
    network.model.gate.set()
    await browser.shows(".job.failed", "5 added, 0 updated, 0 unchanged, 2 failed")
    await browser.shows(".job.failed", "large.txt: more text than the 1024 bytes allowed")
    await browser.shows(".job.failed", "old.tar.gz: a gzip archive, not text")
    await browser.picture("index")
    await browser.run(DROPPED, "backups.md", (home / "backups.md").read_text(encoding="utf-8"))
    await browser.shows(".job.done", "0 added, 0 updated, 1 unchanged; 0 chunks")
    theirs = document("prices.csv", "item,price\nflour,2\nsalt,1\n")
    await network.call("search-index", collection="notes", jobId="theirs", documents=[theirs])
    await browser.shows(".job.done", "a job of another callerDone.")


DROPPED = """
const files = new DataTransfer();
files.items.add(new File([arguments[1]], arguments[0]));
const kind = { dataTransfer: files, bubbles: true, cancelable: true };
document.querySelector("#drop label").dispatchEvent(new DragEvent("drop", kind));
"""


async def look_at_collections(browser: Browser) -> None:
    await browser.click("#to-collections")
    await browser.shows(".tiles", "sources5")
    await browser.click("tbody a")
    await browser.shows("#detail h4", "Sources 1 to 5 of 5")
    assert await browser.run("return location.hash") == "#collections?name=notes"
    beside = "const [one, two] = document.querySelectorAll('#browse > *');"
    tops = "return two.getBoundingClientRect().left > one.getBoundingClientRect().right"
    assert await browser.run(f"{beside} {tops}")
    assert set(await browser.texts(".sources .source")) == {
        *("backups.md", "bread.html", "harvest.docx", "people.json", "prices.csv")
    }
    await look_at_figures(browser)
    assert [html for name, html in await browser.controls() if not name] == []
    await browser.picture("collections")
    await browser.click("#detail .buttons a")


async def look_at_figures(browser: Browser) -> None:
    await browser.until("document.querySelectorAll('#detail .chart canvas').length === 2")
    labels = "[...document.querySelectorAll('#detail .chart')].map(e => e.ariaLabel).join()"
    assert "Growth to 5 chunks of 5 sources" in await browser.run(f"return {labels}")
    counts = await browser.texts("#detail .plain td:last-child")
    assert sum(map(int, counts)) == 10  # chunks by size, and by minute
    await browser.shows("figcaption", "by the minute of their last indexing")

    await browser.click(".map button")
    await browser.until("document.querySelector('.stage canvas')")
    assert sorted(await browser.texts(".legend .name")) == [
        *("backups.md", "bread.html", "harvest.docx", "people.json", "prices.csv")
    ]
    await browser.keys(".stage", LEFT * 4)
    first = await browser.run("return document.querySelector('.tip .source').textContent")
    await browser.keys(".stage", RIGHT * 4)
    last = await browser.run("return document.querySelector('.tip .source').textContent")
    assert first != last
    off_centre = (
        "Math.abs(parseFloat(document.querySelector('.ring.active').style.left)"
        " - document.querySelector('.stage').clientWidth / 2)"
    )
    await browser.until(f"{off_centre} > 50")
    await browser.keys(".stage", "+")
    await browser.until(f"{off_centre} < 2")
    await browser.keys(".stage", f"0{ENTER}")
    await browser.until(f"{off_centre} > 50")
    await browser.shows(".found", "4 similar chunks, 4 on the map")
    await browser.until("document.querySelectorAll('.ring.like').length === 4")
    assert await browser.run("return document.querySelectorAll('.lines line').length") == 4
    await browser.shows(".found .source", last)
    await browser.click("#detail h3")
    await browser.until("document.querySelector('.tip').hidden")
    await browser.point(".ring.like")
    chunk = await browser.run("return document.querySelector('.ring.like').dataset.chunk")
    await browser.shows(".tip .source", chunk.split(":")[1])
    await browser.press()
    await browser.shows(".found .source", chunk.split(":")[1])
    await browser.shows(".found", "4 similar chunks, 4 on the map")


async def search(browser: Browser) -> None:
    await browser.until("document.activeElement.id === 'query'")
    assert await browser.run("return document.getElementById('collection').value") == "notes"
    await browser.keys("#query", f"when do apples ripen?{ENTER}")
    await browser.shows("#search-summary", "Hits: hybrid 5")
    assert (await browser.texts(".hit .source"))[0] == "harvest.docx:1"
    assert len(await browser.texts(".column")) == 1
    asked = await browser.run("return location.hash")
    await browser.keys("#mode", "all")
    await browser.run("document.getElementById('query').value = ''")
    await browser.keys("#query", f"when do backups run?{ENTER}")
    await browser.shows("#search-summary", "Hits: hybrid 5, semantic 5, keyword 1")
    await browser.run("history.back()")
    await browser.until("document.getElementById('query').value === 'when do apples ripen?'")
    summary = "document.getElementById('search-summary').textContent"
    await browser.until(f"{summary} === 'Hits: hybrid 5'")
    assert await browser.run("return location.hash") == asked
    await browser.run("history.forward()")
    await browser.shows("#search-summary", "Hits: hybrid 5, semantic 5, keyword 1")
    await browser.run("location.reload()")
    await browser.shows("#search-summary", "Hits: hybrid 5, semantic 5, keyword 1")
    assert await browser.run("return document.getElementById('collection').value") == "notes"
    steps = "document.querySelector('.times').open"
    assert await browser.run(f"return {steps}") is False
    for mode in ("hybrid", "semantic", "keyword"):
        column = f"section[aria-labelledby=mode-{mode}]"
        assert (await browser.texts(f"{column} .hit:first-child .source"))[0] == "backups.md:1"
        explained = await browser.run(EXPLAINED, column)
        assert len(explained) == (1 if mode == "keyword" else 5)
        for score, parts in explained:
            assert sum(parts) == pytest.approx(score, abs=0.003)
            assert any(parts)
    assert {text.lower() for text in await browser.texts(".hit mark")} == {"backups", "backups run"}
    texts = await browser.texts("section[aria-labelledby=mode-semantic] .hit .text")
    assert any(text.startswith("# Bread\n\nIt rests") for text in texts)
    code = await browser.texts("section[aria-labelledby=mode-semantic] .hit .text code")
    assert "```\na\n  b\n```" in code
    assert '[{"name": "Ada", "job": "mathematician"}]' in code
    assert HARMFUL in (await browser.texts(".hit .text"))[0]
    assert await browser.run("return document.querySelector('.hit img')") is None
    assert [html for name, html in await browser.controls() if not name] == []
    await browser.picture("search")


EXPLAINED = """
const number = (text) => Number(text.replace("\u2212", "-"));
return [...document.querySelectorAll(`${arguments[0]} .hit`)].map((hit) => [
  number(hit.querySelector(".score").textContent),
  [...hit.querySelectorAll(".contributions dd span:first-of-type")]
    .map((part) => number(part.textContent)),
]);
"""


async def look_at_similar(browser: Browser) -> None:
    await browser.click("button[aria-label^='Similar to backups.md']")
    await browser.until("document.querySelectorAll('dialog .hit').length === 4")
    await browser.keys("dialog button", ESCAPE)
    await browser.until("document.querySelector('dialog') === null")
    label = "document.activeElement.getAttribute('aria-label')"
    assert (await browser.run(f"return {label}")).startswith("Similar to backups.md")


async def degrade(network: Network, browser: Browser) -> None:
    network.model.failure = down
    await browser.keys("#query", f" other words{ENTER}")
    await browser.shows("#search-summary", "semantic failed, keyword 1")
    await browser.shows("section[aria-labelledby=mode-hybrid] .notice", "embedding_unavailable")
    await browser.shows("section[aria-labelledby=mode-semantic] .bad", "embedding_unavailable")
    await browser.shows("section[aria-labelledby=mode-semantic] .hint", "model")
    await browser.picture("degraded")
    network.model.failure = None


async def look_at_network(browser: Browser) -> None:
    await browser.click("#to-network")
    await browser.shows("#agents section", "search-query")
    await browser.shows("#agents section", "create-embedding")
    assert set(await browser.texts(".parts li")) == {
        *("broker: up", "database: up", "models: up", "worker: up")
    }
    row = (
        "[...document.querySelectorAll('#calls tr')].find(e => e.innerText.includes(arguments[0]))"
    )
    cells = await browser.until(f"[...{row}.cells].map(e => e.innerText)", "search-query")
    assert cells[1:3] == ["14", "1"]
    await browser.shows("#calls table", "search-similar")
    await browser.until("document.querySelectorAll('#calls .chart canvas').length === 2")
    await browser.shows("#calls p", "calls per second, peak")
    await browser.shows("#calls p", "1 event stream open")
    await browser.picture("network")


async def delete(browser: Browser) -> None:
    await browser.click("#to-collections")
    await browser.click("tbody a")
    for answer, left in (("", 5), ("delete", 4)):
        await browser.click("button[aria-label='Delete bread.html']")
        await browser.shows("dialog", "Delete bread.html from notes?")
        assert await browser.run("return document.activeElement.textContent") == "Cancel"
        await browser.click(f"dialog button[value='{answer}']")
        await browser.shows("#detail h4", f"of {left}")
        await browser.until("document.querySelector('dialog') === null")
    await browser.click("#detail .buttons .danger")
    await browser.click("dialog button[value='delete']")
    await browser.shows("#overview", "There are no collections yet.")
    assert await browser.texts("#detail > *") == []
    assert await browser.run("return location.hash") == "#collections"
    await browser.click("#to-search")
    await browser.shows("#nothing", "Index something")


async def test_question_is_answered_with_citations_refused_stopped_or_left_to_the_passages(
    network: Network, tmp_path: Path, browser: Browser
) -> None:
    texts = {"backups": "Backups run every night at 02:00.", "people": f"Ada restores. {HARMFUL}"}
    documents = [document(source, text) for source, text in texts.items()]
    await network.call("search-index", collection="docs", documents=documents)
    async with chat_server(tmp_path) as server:
        expansion = network.settings.expansion.model_copy(
            update={"transport": "api", "api_url": SecretStr(server.url), "model": "usual"}
        )
        async with opened(replace(network.settings, expansion=expansion)) as url:
            server.says = f"{texts['backups'][:-1]} [1]. {HARMFUL} [2]. They are kept 90 days [1]."
            server.hold = asyncio.Event()
            await browser.go(url)
            await browser.keys("#query", f"when do backups run every night?{TAB * 5}{ENTER}")
            await browser.shows(".answer", "Backups run every night at 02:00. [1]")
            await browser.shows("#search-summary", "Answering")
            await browser.picture("ask-streaming")
            server.hold.set()
            await browser.shows("#search-summary", "Answered, with citations.")
            assert not await browser.run("return document.getElementById('stop').checkVisibility()")
            await browser.shows("summary", "Left out, not supported by a passage")
            assert "90" in (await browser.texts(".column details li"))[-1]
            assert "90" not in (await browser.texts(".answer"))[0]
            assert (await browser.texts(".cited .hit .source"))[0] == "backups:1"
            assert [html for name, html in await browser.controls() if not name] == []
            await browser.picture("ask")
            await browser.keys(".answer button", ENTER)
            await browser.shows("dialog .text", texts["backups"])
            await browser.picture("ask-passage")
            await browser.keys("dialog button", ESCAPE)
            focused = "document.activeElement.getAttribute('aria-label')"
            await browser.until(f"{focused} === 'Passage 1: backups'")
            assert await browser.run("return document.querySelector('.column img')") is None

            server.hold = asyncio.Event()
            await browser.run("location.reload()")
            await browser.shows(".answer", "Backups run every night at 02:00.")
            await browser.click("#stop")
            await browser.shows("#search-summary", "Stopped.")
            await soon(server.dropped)
            assert await browser.run("return document.activeElement.id") == "query"

            server.hold, server.says = None, "NOT IN THE SOURCES."
            await browser.click("#ask")
            await browser.shows(".column .notice", "Not in the sources.")
            await browser.shows("#search-summary", "Not in the sources.")
            await browser.picture("ask-refused")
            server.status = 503
            await browser.click("#ask")
            await browser.shows(".column .notice", "No language model answered.")
            assert len(await browser.texts(".cited .hit")) == 2
            await browser.picture("ask-passages")
            await browser.go(f"{url}/#search?q=x&in=gone&ask=1")
            await browser.shows(".column .bad", "gone")
            await browser.shows("#search-summary", "Failed.")
            await browser.picture("ask-failed")


def paged(tool_input: dict[str, Any]) -> dict[str, Any]:
    """search-collection-info of a collection with 120 sources."""
    first = int(tool_input.get("cursor", 0))
    end = min(120, first + tool_input["limit"])
    further = {"nextCursor": str(end)} if end < 120 else {}
    return {**INFO, "sources": [f"s{number}" for number in range(first, end)], **further}


async def test_sources_are_paged_and_every_control_is_reachable_by_keyboard(
    stage: Stage, tmp_path: Path, browser: Browser
) -> None:
    stage.answers["search-collections"] = lambda _: {"collections": [COLLECTION]}
    stage.answers["search-collection-info"] = paged
    stage.answers["notes-overview"] = lambda _: {**OVERVIEW, **FIGURES}
    async with opened(settings_for(stage.url, tmp_path)) as url:
        await browser.go(f"{url}/#collections")
        await browser.shows("tbody", "notes")
        focused = []
        for _ in range(6):
            await browser.keys(":focus, body", TAB)
            focused.append(await browser.run("return document.activeElement.textContent"))
        links = ["Skip to content", "Search", "Collections", "Index", "Network"]
        assert focused == [*links, "notes"]
        await browser.keys("tbody a", ENTER)
        for heading, button in (
            ("Sources 1 to 50 of 120", "Next"),
            ("Sources 51 to 100 of 120", "Next"),
            ("Sources 101 to 120 of 120", "Previous"),
            ("Sources 51 to 100 of 120", None),
        ):
            await browser.shows("#detail h4", heading)
            if button:
                place = 2 if button == "Next" else 1
                await browser.click(f"#detail .sources + .buttons button:nth-child({place})")
        assert (await browser.texts(".sources .source"))[0] == "s50"
        await browser.shows(
            "figcaption", "A sample of 3 chunks; the most common size is 0 to 49 tokens"
        )
        await browser.shows("figcaption", "by the month of their last indexing")


async def test_console_reports_a_lost_broker_or_gateway_and_reconnects(
    stage: Stage, tmp_path: Path, browser: Browser
) -> None:
    listed: list[dict[str, Any]] = []
    stage.answers["search-collections"] = lambda _: {"collections": listed}
    stage.answers["search-collection-info"] = paged
    stage.answers["notes-overview"] = lambda _: {**OVERVIEW, **FIGURES}
    stage.answers["search-query"] = lambda _: {
        "success": False,
        "code": "not_found",
        "error": f"no collection named {HARMFUL}",
        "hint": "Did you mean notes?",
    }
    settings = settings_for(stage.url, tmp_path)
    async with AsyncExitStack() as running:
        url = await running.enter_async_context(opened(settings))
        await browser.go(f"{url}/#collections")
        await browser.shows("#overview", "There are no collections yet.")

        await stage.close()
        await browser.shows("#banner", "The gateway cannot reach its broker.")
        await browser.picture("broker-down")
        listed.append(COLLECTION)
        await stage.open()
        await browser.shows("#overview tbody", "notes")
        await browser.until("document.getElementById('banner').hidden")

        await running.aclose()
        await browser.shows("#banner", "The gateway does not answer.")
        listed.append({**COLLECTION, "name": "later"})
        port = urlsplit(url).port or 0
        again = open_gateway(settings, host="127.0.0.1", port=port, wait=SECONDS)
        await running.enter_async_context(again)
        await browser.shows("#overview tbody", "later")
        await browser.until("document.getElementById('banner').hidden")

        await browser.click("#to-search")
        await browser.keys("#query", f"x{ENTER}")
        await browser.shows(".column .bad", f"no collection named {HARMFUL}")
        await browser.shows(".column .hint", "Did you mean notes?")


async def test_token_is_asked_for_once_per_tab(
    stage: Stage, tmp_path: Path, browser: Browser
) -> None:
    stage.answers["search-collections"] = lambda _: {"collections": [COLLECTION]}
    settings = settings_for(stage.url, tmp_path, SEARCH_GATEWAY_TOKEN=TOKEN)
    async with opened(settings) as url:
        await browser.go(f"{url}/#collections")
        await browser.keys("dialog input", ESCAPE)
        await browser.shows("#overview .bad", "unauthorized")
        await browser.click("#overview .bad button")
        await browser.keys("dialog input", f"wr\N{LATIN SMALL LETTER O WITH DIAERESIS}ng{ENTER}")
        await browser.shows("dialog", "The token is wrong.")
        await browser.picture("token")
        await browser.keys("dialog input", f"{TOKEN}{ENTER}")
        await browser.shows("#overview tbody", "notes")
        await browser.run("location.reload()")
        await browser.shows("#overview tbody", "notes")
        assert await browser.texts("dialog") == []
        assert await browser.run("return [localStorage.length, document.cookie]") == [0, ""]
