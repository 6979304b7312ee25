"""Reading files in a child process."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import msgspec
import pytest
from tests.ability_search.text.loaders.samples import pdf, word

from ability_search.files import isolated_reader
from ability_search.files.isolated_reader import (
    Extractor,
    Request,
    answer,
    read_frame,
    write_frame,
)
from ability_search.text.loaders import Bounds, Unreadable

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


@pytest.fixture
def extractor() -> Iterator[Extractor]:
    with Extractor(BOUNDS, timeout=60) as extractor:
        yield extractor


def test_one_process_reads_many_files(extractor: Extractor) -> None:
    assert extractor.extract("a.pdf", pdf("one"), "pdf").text == "one\n\f\n"
    first = extractor._running().pid
    with pytest.raises(Unreadable, match="corrupt"):
        extractor.extract("b.docx", word("two")[:3000], "docx")
    assert extractor.extract("c.html", b"<h1>Drei</h1>", "html").title == "Drei"
    assert extractor._running().pid == first


def test_messages_between_the_processes_round_trip() -> None:
    request = Request("a.pdf", pdf("eins"), "pdf", BOUNDS, 60)
    pipe = io.BytesIO()
    write_frame(pipe, request)
    whole = pipe.getvalue()
    body = read_frame(io.BytesIO(whole))
    assert body is not None
    reply = answer(body)
    assert reply.found is not None
    assert (reply.found.text, reply.found.metadata["pages"]) == ("eins\n\f\n", 1)
    for cut in (0, 3, 8, len(whole) - 1):
        assert read_frame(io.BytesIO(whole[:cut])) is None
    missing = msgspec.msgpack.encode(Request("a.pdf", b"", "pdf", BOUNDS, 60))
    assert "corrupt" in answer(missing).problem


def test_text_files_need_no_child(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_reader, "_CHILD", "no.such.module")
    assert extractor.extract("a.md", b"# A", "markdown").title == "A"


def test_a_file_that_takes_too_long_does_not_affect_the_next() -> None:
    with Extractor(BOUNDS, timeout=0.01) as extractor:
        # A process takes longer to start.
        with pytest.raises(Unreadable, match="file_timeout"):
            extractor.extract("a.pdf", pdf("x"), "pdf")
        extractor._timeout = 60
        assert extractor.extract("a.pdf", pdf("x"), "pdf").text == "x\n\f\n"


def test_a_crash_does_not_affect_the_next_file(extractor: Extractor) -> None:
    extractor._running().kill()
    with pytest.raises(Unreadable, match="crashed"):
        extractor.extract("a.pdf", pdf("x"), "pdf")
    assert extractor.extract("a.pdf", pdf("x"), "pdf").text == "x\n\f\n"


def test_a_file_that_needs_too_much_memory_does_not_affect_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated_reader, "_MEMORY", 600 << 20)
    page = b"<p>x</p>" * (8 << 20)
    with Extractor(Bounds(text=1 << 30, unpacked=1), timeout=60) as extractor:
        with pytest.raises(Unreadable, match=r"memory|crashed|corrupt"):
            extractor.extract("a.html", page, "html")
        assert extractor.extract("a.html", b"<p>small", "html").text == "small"


def test_closing_ends_a_read_in_progress() -> None:
    extractor = Extractor(BOUNDS, timeout=60)
    extractor.extract("a.html", b"<p>x", "html")
    child = extractor._running()
    threading.Timer(0.05, extractor.close).start()
    with pytest.raises(Unreadable, match="stopped"):
        for _ in range(10**6):
            extractor.extract("a.html", b"<p>x</p>" * 5000, "html")
    assert child.wait(10) != 0
    with pytest.raises(Unreadable, match="stopped"):
        extractor.extract("a.html", b"<p>x", "html")
    assert extractor.extract("a.md", b"x", "markdown").text == "x"
