"""Documents that callers send."""

from __future__ import annotations

import json

import pytest

from ability_search.documents import Document
from ability_search.errors import InvalidInput
from ability_search.extensions.formats.sent_documents import read_document

TURNS = "\n".join(
    json.dumps({"role": role, "content": content})
    for role, content in (("user", "Where is the key?"), ("assistant", "Below the stone."))
)


def test_the_name_decides_the_format_unless_the_caller_does() -> None:
    page = read_document(Document("a.py", "a.py", "def f(): pass"), False, "content")
    assert (page.format, page.language) == ("code", "python")
    told = read_document(Document("a.py", "a.py", "# Words", format="markdown"), False, "content")
    assert (told.format, told.language, told.title) == ("markdown", None, "a.py")


def test_markdown_has_a_title_and_metadata_of_its_own() -> None:
    text = "---\ntopic: stones\nyear: 1999\n---\n# Granite\n\nIt is hard."
    read = read_document(Document("a.md", "a.md", text, metadata={"year": 2001}), False, "content")
    assert read.title == "Granite"
    assert read.metadata == {"topic": "stones", "year": 2001}
    assert read_document(Document("a.md", "a.md", "No heading."), False, "content").title == "a.md"
    assert read_document(Document("a.md", "", text), True, "content").title == ""


def test_a_conversation_becomes_the_list_of_its_turns() -> None:
    read = read_document(Document("talk", "talk", TURNS, format="conversation"), False, "content")
    assert "Below the stone." in read.content
    assert read.title == "talk"
    assert read_document(read, True, "content").content == read.content
    empty = Document("talk", "talk", "  ", format="conversation")
    assert read_document(empty, False, "content").content == "  "


def test_what_is_no_conversation_is_refused() -> None:
    document = Document("talk", "talk", "plain words", format="conversation")
    with pytest.raises(InvalidInput) as refused:
        read_document(document, False, "documents[3].content")
    assert refused.value.field == "documents[3].content"


def test_a_file_that_was_read_keeps_its_text() -> None:
    document = Document("a.html", "a.html", "<p>kept</p>", file_hash="1", format="plain")
    assert read_document(document, False, "content").content == "<p>kept</p>"
