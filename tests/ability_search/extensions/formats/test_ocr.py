"""Text recognition by the installed tesseract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import pytest
from tests.ability_search.text.loaders.samples import pdf, scan

from ability_search.extensions.formats import ocr
from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.text.loaders import Bounds, Unreadable

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)

needs_tesseract = pytest.mark.skipif(
    not ocr.is_installed(), reason="tesseract is not installed (apt install tesseract-ocr)"
)


@pytest.mark.slow
@needs_tesseract
def test_scanned_pages_are_read() -> None:
    with IsolatedReader(BOUNDS, timeout=60) as extractor:
        found = extractor.extract("a.pdf", scan("The walrus sleeps", "", "Pelicans drink"), "pdf")
    assert [page.strip() for page in found.text.split("\f")] == [
        "The walrus sleeps",
        "",
        "Pelicans drink",
        "",
    ]
    assert found.unread == ()


@pytest.mark.slow
@needs_tesseract
def test_a_page_that_lies_on_its_side_is_read() -> None:
    lines = [f"The walrus number {n} sleeps while the pelicans drink" for n in range(9)]
    page = pdfium.PdfDocument(pdf("\n".join(lines)))[0]
    pixels = page.render(scale=3, grayscale=True)
    turned = np.ascontiguousarray(np.rot90(pixels.to_numpy()))
    image = b"P5 %d %d 255\n" % turned.shape[::-1] + turned.tobytes()
    recognize = ocr.recognizer(60)
    assert recognize is not None
    assert recognize(image).split("\n")[:9] == lines


@needs_tesseract
def test_a_corrupt_image_is_named_as_such() -> None:
    with (
        IsolatedReader(BOUNDS, timeout=60) as extractor,
        pytest.raises(Unreadable, match="tesseract cannot read"),
    ):
        extractor.extract("a.png", b"\x89PNG\r\n\x1a\n", "image")


@needs_tesseract
def test_recognition_stops_when_its_time_is_up() -> None:
    recognize = ocr.recognizer(0)
    assert recognize is not None
    with pytest.raises(Unreadable, match=r"\(file_timeout\)$"):
        recognize(b"P5 1 1 255\n0")


def test_without_tesseract_nothing_is_recognised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ocr.recognizer(60) is None
