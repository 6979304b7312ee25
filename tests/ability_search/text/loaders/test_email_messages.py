"""E-mail messages and their attachments."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from tests.ability_search.text.loaders.samples import pdf, scan

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(message: EmailMessage | bytes, bounds: Bounds = BOUNDS) -> Extracted:
    data = message if isinstance(message, bytes) else message.as_bytes()
    return extract("a.eml", data, format_of("a.eml", data), bounds)


def mail(subject: str, text: str, subtype: str = "plain") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada Lovelace <ada@example.com>"
    message["To"] = "bob@example.com"
    message["Subject"] = subject
    message["Date"] = "Sun, 01 Mar 2026 12:00:00 +0100"
    message.set_content(text, subtype=subtype)
    return message


HEAD = (
    "# Größe\n\nFrom: Ada Lovelace <ada@example.com>\nTo: bob@example.com\n"
    "Date: Sun, 01 Mar 2026 12:00:00 +0100"
)


def test_a_message_has_its_addresses_and_the_plain_version_of_its_text() -> None:
    message = mail("Größe", "Hello Bob,\n\n# no heading\n")
    message.add_alternative("<p>Not read", subtype="html")
    found = read(message)
    assert found.text == f"{HEAD}\n\nHello Bob,\n\n\\# no heading"
    assert (found.format, found.title) == ("markdown", "Größe")
    assert found.metadata == {
        "from": "Ada Lovelace <ada@example.com>",
        "to": "bob@example.com",
        "created": "2026-03-01T12:00:00+01:00",
    }


def test_a_message_in_html_only_is_read() -> None:
    found = read(mail("Größe", "<h1>Hi</h1><p>There <i>it</i> is", "html"))
    assert found.text == f"{HEAD}\n\n## Hi\n\nThere it is"


def test_a_text_that_contradicts_its_charset_is_read() -> None:
    words = "Die Größe der Übertragung wurde für alle Geräte geändert."
    data = mail("x", "words").as_bytes().replace(b"words", words.encode("latin-1"))
    assert words in read(data.replace(b"7bit", b"8bit")).text


def test_attachments_are_sections_and_unreadable_ones_are_named() -> None:
    message = mail("Größe", "See below.")
    markdown = b"---\ntitle: T\n---\n# One\n\n```\n# code\n```\n\n# Two\n"
    message.add_attachment(markdown, maintype="text", subtype="markdown", filename="a.md")
    message.add_attachment(
        pdf("The walrus", "sleeps"), maintype="application", subtype="pdf", filename="b.pdf"
    )
    message.add_attachment(b"x = 1\n", maintype="text", subtype="plain", filename="größe.py")
    message.add_attachment(b"\x1f\x8b", maintype="application", subtype="gzip", filename="c.gz")
    message.add_attachment(scan("Scanned"), maintype="application", subtype="pdf", filename="d.pdf")
    message.add_attachment(
        b"GIF89a", maintype="image", subtype="gif", filename="logo.gif", disposition="inline"
    )
    message.add_attachment(mail("Inner", "Inner text."))
    found = read(message)
    assert found.text.removeprefix(HEAD) == (
        "\n\nSee below.\n\n## a.md\n\n### One\n\n```\n# code\n```\n\n### Two\n\n## b.pdf\n\n"
        "The walrus\n\nsleeps\n\n## größe.py\n\n```python\nx = 1\n```\n\n## message 6.eml\n\n"
        "### Inner\n\nFrom: Ada Lovelace <ada@example.com>\nTo: bob@example.com\n"
        "Date: Sun, 01 Mar 2026 12:00:00 +0100\n\nInner text."
    )
    assert [each.partition(": ")[0] for each in found.unread] == [
        "attachment=c.gz",
        "attachment=d.pdf",
    ]
    assert found.metadata["attachments"] == ["a.md", "b.pdf", "größe.py", "c.gz", "d.pdf"]


def test_messages_in_messages_are_read_to_a_limited_depth() -> None:
    message = mail("0", "level 0")
    for level in range(1, 8):
        outer = mail(str(level), f"level {level}")
        outer.add_attachment(message)
        message = outer
    found = read(message)
    assert "level 3" in found.text
    assert "level 2" not in found.text
    assert any("too many messages" in each for each in found.unread)


def test_a_file_without_headers_is_no_message() -> None:
    with pytest.raises(Unreadable, match="not an e-mail message"):
        read(b"just words\n\nand more")
