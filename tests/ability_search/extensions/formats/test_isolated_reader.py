"""Reading files in a child process."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec
import openpyxl
import pytest
from tests.ability_search.text.loaders.samples import (
    compressed_pdf,
    pdf,
    replaced,
    saved,
    scan,
    word,
)

from ability_search.extensions.formats import isolated_reader, ocr
from ability_search.extensions.formats.isolated_reader import (
    IsolatedReader,
    Reply,
    Request,
    answer,
    read_frame,
    write_frame,
)
from ability_search.text.loaders import Bounds, Unreadable, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


@pytest.fixture
def extractor() -> Iterator[IsolatedReader]:
    with IsolatedReader(BOUNDS, timeout=60) as extractor:
        yield extractor


def test_one_process_reads_many_files(extractor: IsolatedReader) -> None:
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


@pytest.mark.skipif(not ocr.is_installed(), reason="needs tesseract")
@pytest.mark.process
def test_the_time_begins_anew_with_each_image() -> None:
    replies: list[Reply] = []
    request = Request("a.pdf", scan("walrus", "", "pelican"), "pdf", BOUNDS, 60)
    reply = answer(msgspec.msgpack.encode(request), replies.append)
    assert replies == [Reply(busy=True)] * 2
    assert reply.found is not None
    with IsolatedReader(BOUNDS, timeout=60) as extractor:
        assert extractor.extract("a.pdf", request.data, "pdf") == reply.found


def test_text_files_need_no_child(
    extractor: IsolatedReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_reader, "_COMMAND", ("no-such-program",))
    assert extractor.extract("a.md", b"# A", "markdown").title == "A"


def test_a_file_that_takes_too_long_does_not_affect_the_next() -> None:
    with IsolatedReader(BOUNDS, timeout=0.01) as extractor:
        # A process takes longer to start.
        with pytest.raises(Unreadable, match="file_timeout"):
            extractor.extract("a.pdf", pdf("x"), "pdf")
        extractor._timeout = 60
        assert extractor.extract("a.pdf", pdf("x"), "pdf").text == "x\n\f\n"


def test_a_crash_does_not_affect_the_next_file(extractor: IsolatedReader) -> None:
    extractor._running().kill()
    with pytest.raises(Unreadable, match="crashed"):
        extractor.extract("a.pdf", pdf("x"), "pdf")
    assert extractor.extract("a.pdf", pdf("x"), "pdf").text == "x\n\f\n"


_BODY = (
    b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
)
_TOO_MUCH: dict[str, Callable[[], bytes]] = {
    "a.html": lambda: b"<p>x</p>" * (8 << 20),
    "a.svg": lambda: b"<svg>" + b"<a/>" * (8 << 20),
    "a.docx": lambda: replaced(word("x"), "word/document.xml", _BODY + b"<w:p/>" * (8 << 20)),
    "a.eml": lambda: b"From: a\nContent-Type: text/plain\n\n" + b"x" * (150 << 20),
    "b.eml": lambda: (
        b"From: a\nSubject: b\nContent-Type: image/svg+xml\n\n<svg>" + b"<a/>" * (8 << 20)
    ),
    "a.pdf": lambda: compressed_pdf(b"BT /F1 12 Tf (hello) Tj ET\n", 2_000_000),
}
"""Files that need more memory than the test allows: those of libraries in C and those in Python."""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory")
@pytest.mark.parametrize("name", _TOO_MUCH)
@pytest.mark.process
def test_a_file_that_needs_too_much_memory_is_named_as_such_and_does_not_affect_the_next(
    name: str,
) -> None:
    bounds = Bounds(text=1 << 30, unpacked=1 << 30, memory=600 << 20)
    data = _TOO_MUCH[name]()
    reason = "more than the 600 MiB of memory allowed for reading a file; split it"
    with IsolatedReader(bounds, timeout=120) as extractor:
        if name == "b.eml":
            found = extractor.extract(name, data, "email")
            assert [why for _, why in found.unread] == [f"needs {reason}"]
        else:
            with pytest.raises(Unreadable, match=reason):
                extractor.extract(name, data, format_of(name, data))
        with pytest.raises(Unreadable, match="^corrupt, or not what its name says$"):
            extractor.extract("b.docx", word("two")[:3000], "docx")
        assert extractor.extract("a.html", b"<p>small", "html").text == "small"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory")
def test_a_sheet_whose_cells_lie_too_far_apart_does_not_affect_the_next_file(
    extractor: IsolatedReader,
) -> None:
    book = openpyxl.Workbook()
    book.worksheets[0]["A1"] = book.worksheets[0]["XFD1048576"] = "far"
    with pytest.raises(Unreadable, match="MiB of memory allowed for reading a file; split it"):
        extractor.extract("a.xlsx", saved(book), "xlsx")
    assert extractor.extract("a.html", b"<p>small", "html").text == "small"


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stat(pid: int) -> list[str]:
    """Return the state of a process and the fields after it; ``Z`` if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["Z"]


_USER_TIME = 11
_SOME_TICKS = 30

_READ = """
import sys, threading
from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.text.loaders import Bounds
reader = IsolatedReader(Bounds(1 << 20, 1 << 24), timeout=60)
data = sys.stdin.buffer.read()
threading.Thread(target=reader.extract, args=("a.pdf", data, "pdf"), daemon=True).start()
while reader._child is None:
    pass
print(reader._child.pid, flush=True)
while True:
    end = threading.Event().wait(1)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not ocr.is_installed(), reason="needs /proc and tesseract"
)
@pytest.mark.parametrize("killed", ["nothing", "reader", "parent"])
@pytest.mark.process
def test_no_recognition_of_text_survives_its_reader(killed: str) -> None:
    words = "and the walrus sleeps while pelicans drink " * 2
    dense = "\n".join(f"{n} {words}" for n in range(50))
    pages = scan(*[dense] * 30)
    if killed == "parent":
        process = subprocess.Popen(
            [sys.executable, "-c", _READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pages)
        process.stdin.close()
        reader = int(process.stdout.readline())
        tesseract = _recognition(reader)
        process.kill()
        process.wait(10)
        process.stdout.close()
    else:
        with IsolatedReader(BOUNDS, timeout=120) as extractor, ThreadPoolExecutor(1) as thread:
            reader = extractor._running().pid
            reading = thread.submit(extractor.extract, "a.pdf", pages, "pdf")
            tesseract = _recognition(reader)
            if killed == "reader":
                os.kill(reader, signal.SIGKILL)
            else:
                extractor.close()
            with pytest.raises(Unreadable):
                reading.result(10)
    # A page takes seconds.
    deadline = time.monotonic() + 0.5
    while _stat(reader)[0] != "Z" or _stat(tesseract)[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _recognition(reader: int) -> int:
    """Return the process of tesseract, once it has received a page and works on it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError):
            for pid in _children(reader):
                named = b"\0-\0-" in Path(f"/proc/{pid}/cmdline").read_bytes()
                if named and int(_stat(pid)[_USER_TIME]) > _SOME_TICKS:
                    return pid
        time.sleep(0.005)
    raise AssertionError("tesseract did not start")


def test_closing_ends_a_read_in_progress() -> None:
    extractor = IsolatedReader(BOUNDS, timeout=60)
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


@pytest.mark.skipif(not ocr.is_installed(), reason="needs tesseract")
@pytest.mark.process
def test_pages_beyond_the_time_of_a_file_are_named_and_the_next_reading_goes_on_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    birds = ("walrus", "pelican", "ostrich", "flamingo", "penguin")
    request = Request("a.pdf", scan(*birds), "pdf", BOUNDS, 60)
    recognized: list[bytes] = []
    read = ocr.recognizer(60)
    assert read is not None

    def noted(image: bytes) -> str:
        recognized.append(image)
        return read(image)

    monkeypatch.setattr(isolated_reader, "recognizer", lambda _: noted)
    # Time for three pages and a half.
    clock = count(0, isolated_reader.MOST_TIMES * request.timeout / 3.5)
    reply = answer(msgspec.msgpack.encode(request), now=clock.__next__)
    assert reply.found is not None
    assert reply.found.text.split() == [*birds[:3]]
    ((part, reason),) = reply.found.unread
    assert (part, reason) == (
        "page=4-5",
        "not read within 3600 seconds; the next indexing goes on (file_timeout)",
    )
    assert len(reply.texts) == len(recognized) == 3
    following = answer(msgspec.msgpack.encode(msgspec.structs.replace(request, known=reply.texts)))
    assert following.found is not None
    assert following.found.text.split() == [*birds]
    assert (following.found.unread, following.texts) == ((), {})
    assert len(recognized) == len({*recognized}) == 5


@pytest.mark.skipif(not ocr.is_installed(), reason="needs tesseract")
@pytest.mark.process
def test_texts_are_kept_only_until_a_file_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, data = tmp_path / "kept", scan("walrus", "pelican")
    image = ocr.PageTexts(kept)
    image.keep(data, {"other": "text"})
    (file,) = kept.iterdir()
    assert (file.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o600, 0o700)
    seen: list[str] = []
    with IsolatedReader(BOUNDS, timeout=60, kept=kept, advance=seen.append) as extractor:
        assert extractor.extract("a.pdf", data, "pdf").text.split() == ["walrus", "pelican"]
    assert seen == ["a.pdf, image 1", "a.pdf, image 2"]
    assert [*kept.iterdir()] == []
    image.keep(data, {"other": "text"})
    file.write_text("corrupt")
    assert (image.load(data), image.load(b"other")) == ({}, {})
    nowhere = ocr.PageTexts(file / "a file")
    nowhere.keep(data, {"other": "text"})
    assert nowhere.load(data) == {}
