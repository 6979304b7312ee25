"""HTML pages."""

from __future__ import annotations

import pytest

from ability_search.text.loaders import Bounds, Extracted, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, data: bytes, bounds: Bounds = BOUNDS) -> Extracted:
    return extract(name, data, format_of(name, data), bounds)


PAGE = b"""<!doctype html>
<html lang="en"><head><title>Backups | Site</title>
<meta name="author" content="Ada"><meta name="description" content="How to">
<style>p { color: red }</style><script>var x = "<p>no</p>"</script></head>
<body><nav><a href="/">Home</a></nav><header>Banner</header>
<main><h1>Back<em>ups</em></h1><p>They run<br>at <b>two</b> &amp; never at noon.</p>
<ul><li>one<ul><li>inner</li></ul></li><li><p>two</p></li></ul><ol><li>first</li></ol>
<pre>  keep
    this</pre>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>db</td><td>1 GB</td></tr></table>
<p hidden>hidden</p><div aria-hidden="true">decor</div><div>loose <!-- x --> words</div>
<aside>Advert</aside></main><footer>Imprint</footer></body></html>"""


def test_the_main_text_of_a_page_keeps_its_structure() -> None:
    found = read("a.html", PAGE)
    assert found.text == (
        "# Backups\n\nThey run\nat two & never at noon.\n\n- one\n  - inner\n- two\n1. first\n\n"
        "```\n  keep\n    this\n```\n\n- Name: db; Size: 1 GB\n\nloose words"
    )
    assert (found.format, found.title) == ("markdown", "Backups")
    assert found.metadata == {"author": "Ada", "description": "How to", "lang": "en"}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"<p>just <i>this", "just this"),
        (b"<body><nav>Home</nav><p>Body text</p><footer>f</footer>", "Body text"),
        (b"<nav>only navigation</nav>", "only navigation"),
        (b"<main></main><p>outside</p>", "outside"),
        (b"<table><tr><td>laid out</td><td>by a table</td></tr></table>", "laid out\n\nby a table"),
        (b"<div>" * 2000 + b"deep", "deep"),
        (b"plain words", "plain words"),
        ('<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"), "Größe"),
        ('<?xml version="1.0" encoding="utf-8"?><html><p>Größe</p></html>'.encode(), "Größe"),
        ('<meta charset="nonsense"><p>Größe'.encode(), "Größe"),
        (b'<p>a<img src="x" alt="A picture">b</p>', "aA pictureb"),
    ],
)
def test_the_text_of_unusual_pages_is_read(page: bytes, text: str) -> None:
    assert read("a.html", page).text == text
