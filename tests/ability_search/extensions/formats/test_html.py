"""HTML pages."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ability_search.text.loaders.samples import book

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

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
    assert (found.format, found.title) == ("markdown", "Backups | Site")
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


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [
                "<th rowspan=2>Animal<th colspan=2>Food",
                "<th>am<th>pm",
                "<td rowspan='2'>Walrus<td>clams<td>fish",
                "<td colspan=2>squid",
            ],
            "- Animal: Walrus; Food am: clams; Food pm: fish\n"
            "- Animal: Walrus; Food am: squid; Food pm: squid",
        ),
        (["<th>a<th>b", "<td rowspan=0>1<td colspan=x>2"], "- a: 1; b: 2"),
        (["<th>a<th>b", "<td rowspan=99999>1<td colspan=99999>2"], f"- a: 1; b: 2{'; 2' * 99}"),
    ],
)
def test_the_text_of_merged_cells_of_a_page_is_that_of_each(rows: list[str], text: str) -> None:
    page = "".join(f"<tr>{row}" for row in rows)
    assert read("a.html", f"<table>{page}</table>".encode()).text == text


@pytest.mark.parametrize(
    ("head", "body", "title"),
    [
        ("Networking - Site", "<h1>Overview</h1>", "Overview | Networking - Site"),
        ("Overview - Site", "<h1>Overview</h1>", "Overview - Site"),
        ("Overview", "<h1>An overview of it</h1>", "An overview of it"),
        ("", "<h1>Overview</h1><h1>More</h1>", "Overview"),
        ("Site", "<h1>Overview</h1><h1>More</h1>", "Site"),
        ("Site", "<h1></h1>", "Site"),
    ],
)
def test_the_title_of_a_page_counts_beside_its_heading(head: str, body: str, title: str) -> None:
    page = f"<head><title>{head}</title></head><body>{body}<p>text"
    assert read("a.html", page.encode()).title == title


def test_the_chapters_of_a_book_are_read_in_order() -> None:
    chapters = [f"<html><body><h1>Chapter {n}</h1><p>Words {n}.</p></body></html>" for n in (1, 2)]
    found = read("a.epub", book(*chapters))
    assert found.text == "# Chapter 1\n\nWords 1.\n\n# Chapter 2\n\nWords 2."
    assert (found.format, found.title) == ("markdown", "The Book")
    assert found.metadata == {"author": "Ada", "lang": "en"}


def test_corrupt_and_missing_chapters_of_a_book_are_named() -> None:
    data = book("<p>Kept", "", "<p>corrupted", "<p>missing")
    package, mark, members = data.partition(b"<p>Kept")
    members = members.replace(b"<p>corrupted", b"<p>corruptex").replace(b"c3.xhtml", b"c4.xhtml")
    found = read("a.epub", package + mark + members)
    assert found.text == "Kept"
    assert found.unread == (
        ("chapter=OPS/text files/c2.xhtml", "corrupt"),
        ("chapter=OPS/text files/c3.xhtml", "not in the file"),
    )
    with pytest.raises(Unreadable, match="none of its chapters"):
        read("a.epub", book("<p>corrupted").replace(b"<p>corrupted", b"<p>corruptex"))


def test_an_encrypted_book_is_named_as_such() -> None:
    data = book("<p>x", encrypted="OPS/text files/c0.xhtml")
    with pytest.raises(Unreadable, match="encrypted"):
        read("a.epub", data)
    assert read("b", book("<p>x", encrypted="OPS/font.otf")).text == "x"


def test_the_words_of_a_drawing_are_read() -> None:
    drawing = (
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><title>Plan</title><desc>How'
        b" it is wired</desc><g><text><tspan>Router</tspan> <tspan>north</tspan></text></g>"
        b"<style>p {}</style><script>no</script></svg>"
    )
    found = read("a.svg", drawing)
    assert (found.text, found.title) == ("Plan\n\nHow it is wired\n\nRouter north", "Plan")


def test_labels_of_a_drawing_are_read_once_and_line_by_line() -> None:
    drawing = (
        b'<svg xmlns="http://www.w3.org/2000/svg"><text><tspan x="0" y="1">North</tspan>'
        b'<tspan x="0" y="2">ga</tspan><tspan x="9" y="2">te</tspan><tspan dy="1em">open</tspan>'
        b"</text><switch><foreignObject><div><div>Pump<p>two</p></div></div></foreignObject>"
        b"<text>Pump two</text></switch></svg>"
    )
    assert read("a.svg", drawing).text == "North gate open\n\nPump two"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("<tr><th colspan=2>Title<tr><td>a<td>b", "- Title\n- a; b"),
        ("<tr><th>Name<td>Ada<tr><th>Born<td>1815", "- Name: Ada\n- Born: 1815"),
        ("<tr><th>East<td>a<td>b<tr><th>West<td>c<td>d", "- East: a; b\n- West: c; d"),
        ("<tr><th><th>2023<th>2024<tr><th>East<td>1<td>2", "- East; 2023: 1; 2024: 2"),
        (
            "<tr><th>Name<th colspan=2>Born<tr><td>Ada<td>1815<td>London",
            "- Name: Ada; Born: 1815; Born: London",
        ),
    ],
)
def test_cells_are_named_by_the_names_of_their_rows_and_columns(rows: str, text: str) -> None:
    assert read("a.html", f"<table>{rows}</table>".encode()).text == text


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["td", "th"]), st.integers(1, 3)), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_cell_of_a_table_is_lost(rows: list[list[tuple[str, int]]]) -> None:
    page = "<table>"
    for number, row in enumerate(rows):
        cells = (
            f"<{tag} colspan={span}>w{number}x{column}</{tag}>"
            for column, (tag, span) in enumerate(row)
        )
        page += f"<tr>{''.join(cells)}</tr>"
    text = read("a.html", f"{page}</table>".encode()).text
    words = {f"w{number}x{column}" for number, row in enumerate(rows) for column in range(len(row))}
    assert words <= set(re.findall(r"w\dx\d", text))


@pytest.mark.parametrize(
    "gap",
    [
        "<br>",
        "<br/>and<br>",
        "</p><p>",
        "</li><li>",
        "</div><div>",
        "<hr>",
        "<script>x</script> ",
        " ",
    ],
)
@pytest.mark.parametrize("place", ["<h1>{}</h1>", "<table><tr><th>{}<td>2</table>", "<p>{}</p>"])
def test_words_of_different_lines_stay_apart(place: str, gap: str) -> None:
    found = read("a.html", place.format(f"first{gap}last").encode())
    words = found.text.replace(":", " ").split()
    assert "first" in words
    assert "last" in words


def test_captions_and_misplaced_tables_are_read() -> None:
    inner = "<table><caption>Inner<tr><th>Sum<th>Of<tr><td>7<td>8</table>"
    page = (
        f"<table><caption>Outer</caption><thead><tr><th>Name<th>Born</thead>{inner}<tbody></table>"
    )
    text = read("a.html", page.encode()).text
    assert text == "Outer\n\n- Name; Born\n\nInner\n\n- Sum: 7; Of: 8"
