"""Text files: encodings, front matter, reStructuredText, tables and notebooks."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.formats.encodings import detected
from ability_search.extensions.formats.front_matter import markdown_metadata
from ability_search.filters.facets import facets_of
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.loaders import Bounds, Extracted, Unreadable, decoded, extract, format_of


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe".encode(), "Größe"),
        (codecs.BOM_UTF8 + b"text", "text"),
        ("Größe".encode("utf-16"), "Größe"),
        (codecs.BOM_UTF16_BE + "Größe".encode("utf-16-be"), "Größe"),
        ("Größe".encode("utf-32"), "Größe"),
        ("Öl und Ähre: für die schöne Übung wäre das möglich".encode("latin-1"), None),
        (b"", ""),
        ("Größe der Änderung\n".encode("utf-16-le"), "Größe der Änderung\n"),
        ("Größe der Änderung\n".encode("utf-16-be"), "Größe der Änderung\n"),
        ("会议记录:明天上午\n数据库备份".encode("utf-16-le"), "会议记录:明天上午\n数据库备份"),
        (b"Gr\xc3\xb6\xc3\x9fe\xff und mehr", "Größe\ufffd und mehr"),
        ("Größe ".encode() * 9999 + b"\xc3", "Größe " * 9999 + "\ufffd"),
    ],
)
def test_marked_and_plain_encodings_are_read(data: bytes, text: str | None) -> None:
    assert decoded(data) == (data.decode("latin-1") if text is None else text)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Les élèves étaient à la bibliothèque."),
        ("cp1252", "El señor Núñez pagó la cuenta"),
        ("cp1252", "Não há informações disponíveis"),
        ("cp1252", "Återbetalning för många år"),
        ("cp1250", "Zażółć gęślą jaźń, proszę"),
        ("cp1251", "Привет, мир. Кошка сидит на окне."),
        ("koi8-r", "Привет, мир. Кошка сидит на окне."),
        ("euc-jp", "会議は明日の午後三時に始まります。"),
        ("shift-jis", "会議は明日の午後三時に始まります。"),
        ("shift-jis", "日本語のテキスト。"),
        ("gbk", "会议明天下午三点开始。"),
        ("cp1255", "שלום עולם מה שלומך היום"),
    ],
)
def test_short_texts_in_older_encodings_are_read(encoding: str, text: str) -> None:
    assert decoded(text.encode(encoding)) == text


WESTERN = (
    "café señor",
    "Le café à côté de l'hôtel est déjà fermé.",
    "Où êtes-vous né ?",
    "La qualità del caffè è più alta.",
    "Lunedì la riunione sarà già finita.",
    "Der er små børn på øen Ærø.",
    "The price is £5, not £10",
    "Bestätigung der Änderung für das Büro",
)
ENGLISH = "The notes of the project are kept in this file for all of us to read. "


@pytest.mark.parametrize("text", [*WESTERN, "Příliš žluťoučký kůň", "Привет, мир. Кошка спит."])
@pytest.mark.parametrize("frame", ["{}", ENGLISH * 3 + "{}", "name;note\n1;{};ok\n2;x;no\n"])
def test_words_of_a_language_are_read_in_all_its_encodings(frame: str, text: str) -> None:
    whole = frame.format(text)
    for encoding in ("cp1252", "iso8859-15", "cp850", "cp1250", "iso8859-2", "cp1251", "koi8-r"):
        # A few words may be as plausible in another encoding of the same letters.
        if encoding in ("cp1252", "iso8859-15") or text not in WESTERN:
            with contextlib.suppress(UnicodeEncodeError):
                assert decoded(whole.encode(encoding)) == whole
        elif encoding == "cp850" and len(text) > 20:
            assert decoded(whole.encode(encoding)) == whole


CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Schůzka začíná zítra dopoledne v devět hodin."
POLISH = "Zażółć gęślą jaźń. Wiadomość została wysłana, ale nikt jeszcze nie odpowiedział."
RUSSIAN = "Встреча начинается завтра утром. Отчёт лежит в общей папке."
TURKISH = "Toplantı yarın öğleden sonra başlıyor, şimdi gelmenize gerek yok."
JAPANESE = "会議は明日の午後三時に始まります。"


@pytest.mark.parametrize(
    ("text", "encodings"),
    [
        (CZECH, "cp1250 iso8859-2 cp852 mac-latin2"),
        (POLISH, "cp1250 iso8859-2 cp852 mac-latin2"),
        (RUSSIAN, "cp1251 koi8-r iso8859-5 cp866 cp855 mac-cyrillic"),
        ("Зустріч починається завтра вранці, її перенесли з четверга.", "cp1251 koi8-u"),
        (TURKISH, "cp1254 cp857"),
        ("Sapulce sākas rīt no rīta, ziņojums jau ir pabeigts.", "cp1257 iso8859-13 iso8859-4"),
        ("Η συνάντηση αρχίζει αύριο το πρωί.", "cp1253 iso8859-7"),
        ("الاجتماع يبدأ غدا في الصباح في المكتب", "cp1256 iso8859-6"),
        ("การประชุมจะเริ่มพรุ่งนี้เช้า", "cp874"),
        ("Cuộc họp bắt đầu vào sáng mai.", "cp1258"),
        (JAPANESE, "shift_jis euc-jp iso2022_jp"),
        ("회의는 내일 오후 세 시에 시작합니다.", "cp949 iso2022_kr"),
        ("會議明天下午三點開始，請大家準時參加。", "big5"),
    ],
)
def test_a_language_is_read_in_the_encodings_of_its_systems(text: str, encodings: str) -> None:
    for encoding in encodings.split():
        encoded = unicodedata.normalize("NFD" if encoding == "cp1258" else "NFC", text)
        data = encoded.encode(encoding, "ignore")
        assert decoded(data) == data.decode(encoding), encoding


@given(st.text("abc äöüñé.,", min_size=20), st.lists(st.integers(0, 19), max_size=5))
def test_zero_bytes_in_a_text_become_spaces(text: str, places: list[int]) -> None:
    for place in places:
        text = f"{text[:place]}\0{text[place:]}"
    if text.lower().count("\0") * 4 < len(text):
        assert decoded(text.encode()) == text.replace("\0", " ")


@pytest.mark.parametrize(
    ("text", "named", "encoding"),
    [
        ('<?xml version="1.0" encoding="{}"?><a>Отчёт</a>', "windows-1251", "cp1251"),
        ('<meta charset="{}"><p>“Señor”, it’s 5 €', "iso-8859-1", "cp1252"),
        ("<meta http-equiv=Content-Type content='text/html; charset={}'>①㈱", "Shift_JIS", "cp932"),
        ("#!/usr/bin/python\n# -*- coding: {} -*-\n# Größe Straße", "latin-1", "latin-1"),
        ('@charset "{}";\na::after {{ content: "żółć" }}', "iso-8859-2", "iso8859-2"),
        ('msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n#: 镕', "GB2312", "gbk"),
        ("<meta charset={}><p>Größe", "utf-16", "utf-8"),
        ("<meta charset={}><p>Größe, Straße, Öl", "UTF-8", "cp1252"),
        ("<meta charset={}><p>Größe, Straße, Öl", "unicode_escape", "cp1252"),
    ],
)
def test_a_declared_encoding_is_read_as_browsers_do(text: str, named: str, encoding: str) -> None:
    text = text.format(named)
    assert decoded(text.encode(encoding)) == text


def test_words_about_an_encoding_declare_none() -> None:
    text = 'How we moved from charset=koi8-r: "encoding=cp866" was wrong. Größe für Bücher.'
    assert decoded(text.encode("cp1252")) == text


@pytest.mark.parametrize("encoding", ["utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["a,b\r\n1,Größe\r\n", "Привет 😀", "会议记录: x"])
def test_unmarked_utf32_is_read(encoding: str, text: str) -> None:
    assert decoded(text.encode(encoding)) == text


def test_signs_of_japanese_are_those_of_windows() -> None:
    text = "会議は①番の部屋です。～5％－C:\\dir~1、日本語のテキスト。"
    assert decoded(text.encode("cp932")) == text


@pytest.mark.parametrize(
    "data",
    [
        "Decided to go to 飲茶 with my dad, so we drove to it".encode("gb18030"),
        "Größe ".encode() * 9 + b"\xff",
        ("Größ " * 9).encode()[:-2],
        ("Größe " * 99).encode("utf-16")[:-1],
    ],
)
def test_bytes_that_fit_no_encoding_are_said(data: bytes) -> None:
    text, doubt = detected(data)
    assert "\ufffd" in text
    assert "some bytes do not fit" in doubt[0][1]


def test_a_doubtful_encoding_is_reported() -> None:
    found = read("a.txt", "Zoë and Chloë went to the concert".encode("cp850"))
    assert [part for part, _ in found.unread] == ["encoding=cp850"]
    assert not read("a.txt", WESTERN[1].encode("cp1252") * 3).unread


@pytest.mark.parametrize(
    "parts",
    [
        [("utf-8", "Grüße aus "), ("cp1252", "München, Köln, “Fußgänger” – 5 €")],
        [("utf-8", "Grüße. " * 9), ("cp1252", "Déjà vu\xa0: un café à l’été")],
        [("cp1252", "El señor Núñez pagó. "), ("utf-8", "Привет, 会议")],
        [("cp1252", "CAFÉ\xa0! PARTICIPÉ » l’été "), ("utf-8", "où l’on goûta")],
    ],
)
def test_words_of_windows_1252_in_a_text_of_utf8_are_read(parts: list[tuple[str, str]]) -> None:
    data = b"".join(text.encode(encoding) for encoding, text in parts)
    assert decoded(data) == "".join(text for _, text in parts)


def test_one_wrong_byte_in_a_long_ascii_text_does_not_garble_it() -> None:
    before, after = "plain words of a text\n" * 300, "more words\n" * 300
    text = decoded(before.encode() + b"\x9d" + after.encode())
    assert text.startswith(before)
    assert text.endswith(after)


@pytest.mark.parametrize(
    "data",
    [
        b"ab\0\1cdefghijklmnopq",
        codecs.BOM_UTF16_LE + b"\0\xd8a",
        bytes(range(256)) * 9,
        b"\1\0\2\0\3\0" * 99,
    ],
)
def test_bytes_that_are_not_text_are_rejected(data: bytes) -> None:
    with pytest.raises(Unreadable, match=r"binary|byte order mark"):
        decoded(data)


BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, content: str | bytes, bounds: Bounds = BOUNDS) -> Extracted:
    data = content.encode() if isinstance(content, str) else content
    return extract(name, data, format_of(name, data), bounds)


MATTER = """---
title: Backups
tags: [ops, 2024]
date: 2026-03-01
at: 2026-03-01T10:00:00Z
draft: false
ratio: .nan
nested: {by: Ada}
1: one
secret: !!binary aGFsbG8=
empty:
---

# Heading

text
"""


def test_front_matter_is_metadata_and_stays_in_the_text() -> None:
    found = read("a.md", MATTER)
    assert found.title == "Backups"
    assert found.text == MATTER
    assert found.metadata == {
        "tags": ["ops", 2024],
        "date": "2026-03-01",
        "at": "2026-03-01T10:00:00+00:00",
        "draft": False,
        "nested": {"by": "Ada"},
        "1": "one",
    }
    assert facets_of(found.metadata)


@pytest.mark.slow
@pytest.mark.parametrize(
    "matter",
    [
        "a: [1, 2",
        "a: *x\nb: *x",
        "- just\n- a list",
        "a: |b: c",
        "big: 123456789012345678901234567890",
        "'@type': x",
        "a: " + "[" * 2000,
        "a: !!python/object/apply:os.system [ls]",
    ],
)
def test_unusable_front_matter_is_only_text(matter: str) -> None:
    found = read("a.md", f"---\n{matter}\n---\n\n# Heading\n")
    assert found.metadata == {}
    assert found.title == "Heading"
    assert matter in found.text


def test_malformed_front_matter_is_read_line_by_line() -> None:
    matter = "title: Use it: now\ndate: 2026-02-31\ntags: [a, b\nnext: 'x' y"
    found = read("a.md", f"---\n{matter}\n---\n\ntext\n")
    assert found.title == "Use it: now"
    assert found.metadata == {"date": "2026-02-31", "next": "'x' y"}


def test_one_unusable_value_of_front_matter_does_not_cost_the_others() -> None:
    found = read("a.md", "---\nbig: 123456789012345678901234567890\nok: 1\n---\ntext")
    assert found.metadata == {"ok": 1}


@pytest.mark.parametrize(
    "tags", ["[ops, 2024]", '"ops, 2024"', "'#ops #2024'", "\n- '#ops'\n- '2024'"]
)
def test_tags_of_front_matter_are_a_list(tags: str) -> None:
    found = read("a.md", f"---\ntags: {tags}\n---\ntext")
    assert list(map(str, found.metadata["tags"])) == ["ops", "2024"]


def test_a_skill_is_titled_by_its_name() -> None:
    found = read("a.md", "---\nname: db-advisor\ndescription: Finds slow queries\n---\n# Other")
    assert found.title == "db-advisor"
    assert found.metadata == {"name": "db-advisor", "description": "Finds slow queries"}


TAGGED = """\
---
tags: [ops]
---
# Heading

Restore it #Ops/backup- and #größe, see issue #12, colour #a1b2c3, [x](#anchor), C#sharp. #ops

```sh
#code
```

Inline `#span` and <!-- #comment --> text.

#last
"""


def test_tags_in_the_text_join_those_of_the_front_matter() -> None:
    assert read("a.md", TAGGED).metadata == {"tags": ["ops", "Ops/backup", "größe", "last"]}


@pytest.mark.parametrize("piece", ["<!--", "`", "`a", "``` \n", "~~~\n", "    \n", "``a "])
def test_tags_of_a_hostile_text_are_found_quickly(piece: str) -> None:
    assert markdown_metadata("#tag " + piece * 60_000) == {"tags": ["tag"]}


def test_front_matter_can_be_toml() -> None:
    found = read("a.md", '+++\ntitle = "T"\ndate = 2026-03-01\n+++\n\ntext')
    assert (found.title, found.metadata) == ("T", {"date": "2026-03-01"})


def test_a_comment_in_a_fence_is_not_a_title() -> None:
    assert read("a.md", "```sh\n# comment\n```\n\nTitle\n=====\n").title == "Title"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300))
def test_any_front_matter_leaves_metadata_that_can_be_stored(matter: str) -> None:
    found = read("a.md", f"---\nx: 1\n{matter}\n---\nbody".encode())
    facets_of(found.metadata)
    json.dumps(found.metadata, allow_nan=False)


RST = """\
==========
The Manual
==========

:Author: Ada
:Date: 2026-03-01

Intro.

Install
=======
Run this::

    pip install it

    and wait

.. note::

   Mind the gap.

Details
-------

More.

Use
===

======  =====
a table stays
======  =====
"""


def test_rst_is_cut_at_its_titles() -> None:
    found = read("a.rst", RST)
    assert (found.title, found.metadata) == ("The Manual", {"author": "Ada", "date": "2026-03-01"})
    passages = chunk(found.text, format=found.format)
    assert [(each.breadcrumb, each.start_line) for each in passages] == [
        ("The Manual", 1),
        ("The Manual > Install", 10),
        ("The Manual > Install > Details", 22),
        ("The Manual > Use", 27),
    ]
    assert passages[1].content.endswith("Mind the gap.")


def test_rows_name_their_columns_on_the_lines_of_the_file() -> None:
    found = read("a.csv", 'name;born;note\nAda;1815;\n"Grace\nHopper";1906;x;extra\n\nKay;1940;\n')
    assert found.text.split("\n") == [
        "name, born, note",
        "name: Ada; born: 1815",
        "name: Grace Hopper; born: 1906; note: x; extra",
        "",
        "",
        "name: Kay; born: 1940",
    ]
    passages = chunk(found.text, format="csv", max_tokens=16)
    assert [each.start_line for each in passages] == [1, 3, 6]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.tsv", "a\tb\n1\t2", "a, b\na: 1; b: 2"),
        ("a.csv", "1,2\n3,4", "1; 2\n3; 4"),
        ("a.csv", "word", "word"),
        (
            "a.csv",
            "# of 2024-01-01\nname,born\nAda,1815",
            "# of 2024-01-01\nname, born\nname: Ada; born: 1815",
        ),
        (
            "a.csv",
            "Sales, May, 2024\nname;born\nAda;1815",
            "Sales, May, 2024\nname, born\nname: Ada; born: 1815",
        ),
        ("a.csv", "Sales\n\na,b\n1,2", "Sales\n\na, b\na: 1; b: 2"),
        (
            "a.csv",
            "Region,2023,2024\nEast,1,2",
            "Region, 2023, 2024\nRegion: East; 2023: 1; 2024: 2",
        ),
        ("a.csv", 'a, b\nAda, "x, y"\n', "a, b\na: Ada; b: x, y"),
        ("a.csv", "red;Rose;cut\nred;Tulip;sow", "red; Rose; cut\nred; Tulip; sow"),
        ("a.csv", "a,b\nx,y\na,b\nx,z", "a, b\na: x; b: y\na: a; b: b\na: x; b: z"),
        ("a.csv", "Ada,1990\nBob,1985", "Ada; 1990\nBob; 1985"),
        ("a.csv", "Name,Ada\nBorn,1815\nCity,London", "Name: Ada\nBorn: 1815\nCity: London"),
        ("a.csv", "sep=;\r\na,b;c\r\n1;2\r\n", "\na,b, c\na,b: 1; c: 2"),
        ("a.csv", "\ufeffa,b\r\n1,2\r\n", "a, b\na: 1; b: 2"),
        ("a.csv", '"' + "x" * 200_000, '"' + "x" * 200_000),
    ],
)
def test_unusual_tables_are_read(name: str, content: str, text: str) -> None:
    assert read(name, content).text == text


def test_the_cost_of_a_table_does_not_grow_with_blank_rows_or_unused_columns() -> None:
    blank = read("a.csv", "a,b\n1,2" + "\r" * 500_000 + "3,4")
    assert blank.text == "a, b\na: 1; b: 2" + "\n" * 500_000 + "a: 3; b: 4"
    began = time.process_time()
    header = ",".join(f"c{number}" for number in range(100_000))
    wide = read("a.csv", f"{header}\n" + "1\n" * 100_000, Bounds(text=1 << 21, unpacked=1))
    assert wide.text.endswith("c0: 1")
    assert time.process_time() - began < 5


def test_column_names_cannot_make_a_table_larger_than_allowed() -> None:
    table = f"{'column' * 100},b\n" + "1,2\n" * 1000
    with pytest.raises(Unreadable, match="max_document_bytes"):
        read("a.csv", table, Bounds(text=100_000, unpacked=1))


@given(st.lists(st.lists(st.text("ab1 ,;\"\n'", max_size=6), min_size=2, max_size=3), max_size=8))
def test_every_row_stays_on_its_line(rows: list[list[str]]) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([["name", "value", "note"], *rows])
    lines = read("a.csv", buffer.getvalue()).text.split("\n")
    reader = csv.reader(io.StringIO(buffer.getvalue(), newline=""))
    begin = 0
    for row in reader:
        assert all(word in lines[begin] for cell in row for word in cell.split())
        begin = reader.line_num


def notebook(*cells: object, **further: Any) -> str:
    return json.dumps({"cells": cells, "nbformat": 4, **further})


def test_a_notebook_has_prose_and_fences_without_outputs() -> None:
    content = notebook(
        {"cell_type": "markdown", "source": ["# Study\n", "\n", "Prose."]},
        {"cell_type": "code", "source": "x = '```'\nprint(x)", "outputs": [{"text": "printed"}]},
        {"cell_type": "code", "source": ""},
        {"cell_type": "raw", "source": None},
        "no cell",
        metadata={"kernelspec": {"language": "julia"}},
    )
    found = read("a.ipynb", content)
    assert found.text == "# Study\n\nProse.\n\n````julia\nx = '```'\nprint(x)\n````"
    assert (found.title, found.metadata) == ("Study", {"language": "julia"})


def test_a_notebook_of_version_3_is_read() -> None:
    cells = [{"cell_type": "code", "input": ["x = 1"]}]
    found = read("a.ipynb", json.dumps({"worksheets": [{"cells": cells}]}))
    assert found.text == "```python\nx = 1\n```"
