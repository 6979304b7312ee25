"""E-mail messages and their attachments."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from tests.ability_search.text.loaders.samples import pdf, scan

from ability_search.extensions.formats import email_messages
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


@pytest.mark.parametrize(
    ("charset", "subject"), [("latin-1", "Größe"), ("koi8-r", "Протокол"), ("gb2312", "会议纪要")]
)
def test_raw_headers_are_read_by_the_charset_of_the_text(charset: str, subject: str) -> None:
    head = (
        f"From: a@example.com\r\nSubject: {subject}\r\nContent-Type: text/plain; charset={charset}"
    )
    data = f"{head}\r\n\r\n{subject}".encode(charset)
    found = read(data)
    assert (found.title, found.text.count(subject)) == (subject, 2)


def test_the_html_version_is_read_if_the_plain_one_is_blank() -> None:
    message = mail("Größe", " \n")
    message.add_alternative("<p>The only text", subtype="html")
    assert read(message).text == f"{HEAD}\n\nThe only text"


def test_attachments_of_signed_and_alternative_parts_are_read() -> None:
    rich = EmailMessage()
    rich.set_content("<p>In HTML", subtype="html")
    rich.add_attachment(pdf("Report"), maintype="application", subtype="pdf", filename="r.pdf")
    plain = EmailMessage()
    plain.set_content("Signed text.")
    signed = mail("Signed", "")
    signed.make_mixed()
    signed.replace_header("Content-Type", "multipart/signed")
    versions = EmailMessage()
    versions["Content-Type"] = "multipart/alternative"
    versions.set_payload([plain, rich])
    patch = EmailMessage()
    patch.set_content("x = 1", filename="fix.py", disposition="attachment")
    content = EmailMessage()
    content["Content-Type"] = "multipart/mixed"
    content.set_payload([versions, patch])
    signed.set_payload([content])
    signed.add_attachment(b"abc", maintype="application", subtype="pgp-signature", filename="s.asc")
    found = read(signed)
    assert found.text.endswith("\n\nSigned text.")
    assert [part for part, _ in found.children] == ["attachment=r.pdf", "attachment=fix.py"]
    assert found.unread == ()


def test_attachments_are_documents_of_the_message_and_unreadable_ones_are_named() -> None:
    message = mail("Größe", "See below.")
    markdown = b"---\ntitle: T\n---\n# One\n"
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
    message.add_attachment(b"<p>An <i>ibex", maintype="text", subtype="html")
    message.add_attachment(mail("Inner", "Inner text."))
    found = read(message)
    assert found.text.removeprefix(HEAD) == "\n\nSee below."
    assert [(part, child.title, child.format) for part, child in found.children] == [
        ("attachment=a.md", "T", "markdown"),
        ("attachment=b.pdf", "The Title", "text"),
        ("attachment=größe.py", "größe.py", "code"),
        ("attachment=part 6.html", "part 6.html", "markdown"),
        ("attachment=part 7.eml", "Inner", "markdown"),
    ]
    texts = [child.text for _, child in found.children]
    assert texts[0] == markdown.decode()
    assert texts[1].split() == ["The", "walrus", "sleeps"]
    assert texts[3] == "An ibex"
    assert found.unread == (
        ("attachment=c.gz", "a gzip archive, not text"),
        ("attachment=d.pdf", found.unread[1][1]),
    )
    names = ["a.md", "b.pdf", "größe.py", "c.gz", "d.pdf", "part 6.html", "part 7.eml"]
    assert found.metadata["attachments"] == names
    of_code = found.children[2][1].metadata
    assert of_code["attachment"] == "größe.py"
    assert of_code["from"] == "Ada Lovelace <ada@example.com>"
    assert found.children[1][1].metadata["created"] == "2026-03-01"


def test_attachments_of_one_name_stay_apart_and_names_are_harmless() -> None:
    message = mail("x", "text")
    for name in ("n.txt", "n.txt", "../../etc/pass\twd", "x" * 500 + ".md"):
        message.add_attachment(b"text", maintype="text", subtype="plain", filename=name)
    parts = [part for part, _ in read(message).children]
    assert parts[:2] == ["attachment=n.txt", "attachment=n.txt (2)"]
    assert parts[2].isprintable()
    assert parts[3].endswith("xx.md")
    assert len(parts[3]) < 150


def test_attachments_beyond_the_bounds_of_the_message_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = mail("x", "text")
    for name in ("a.txt", "b.txt", "c.txt"):
        message.add_attachment(b"y" * 400, maintype="text", subtype="plain", filename=name)
    found = read(message, Bounds(text=1000, unpacked=1000))
    assert [part for part, _ in found.children] == ["attachment=a.txt", "attachment=b.txt"]
    ((part, reason),) = found.unread
    assert part == "attachment=c.txt"
    assert "max_document_bytes" in reason
    monkeypatch.setattr(email_messages, "_MOST_ATTACHMENTS", 2)
    found = read(message)
    assert found.unread == (("attachment=c.txt", "only the first 2 are read"),)
    assert len(found.children) == 2


def test_messages_in_messages_are_read_to_a_limited_depth() -> None:
    message = mail("0", "level 0")
    for level in range(1, 8):
        outer = mail(str(level), f"level {level}")
        outer.add_attachment(message)
        message = outer
    found = read(message)
    assert [child.title for _, child in found.children] == ["6", "5", "4", "3"]
    assert found.children[1][0] == "attachment=part 1.eml#attachment=part 1.eml"
    assert any("too many messages" in reason for _, reason in found.unread)


MAILBOX = (
    b"From ada@example.com Sun Mar  1 12:00:00 2026\nFrom: ada@example.com\n"
    b"Message-ID: <one@example.com>\nSubject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\n\n"
    b"The walrus sleeps.\n>From here on it is quiet.\nFrom now on too.\n\nFrom Bob with love.\n\n"
    b"From - Mon Mar  2 09:30:00 2026\nFrom: bob@example.com\nSubject: Owls\n\nAn owl hoots.\n\n"
    b"From bob@example.com Mon Mar  2 09:31 2026\nno header at all\n"
)


@pytest.mark.parametrize("name", ["a.mbox", "Inbox"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_mailbox_is_its_messages(name: str, line_end: bytes) -> None:
    data = MAILBOX.replace(b"\n", line_end)
    assert format_of(name, data) == "mbox"
    found = extract(name, data, "mbox", BOUNDS)
    assert found.text == f"# {name}\n\n3 e-mail messages"
    assert [(part, child.title) for part, child in found.children] == [
        ("message=one@example.com", "Größe"),
        ("message=2", "Owls"),
    ]
    text = found.children[0][1].text
    assert text.endswith(
        "The walrus sleeps.\nFrom here on it is quiet.\nFrom now on too.\n\nFrom Bob with love."
    )
    assert found.unread == (("message=3", "not an e-mail message, though its name says so"),)


def test_what_is_no_mailbox_is_not_read_as_one() -> None:
    with pytest.raises(Unreadable, match="not a mailbox"):
        extract("a.mbox", b"From my heart,\nyours\n", "mbox", BOUNDS)
    with pytest.raises(Unreadable, match="empty"):
        extract("a.mbox", b" \n", "mbox", BOUNDS)
    assert format_of("letter", b"From my heart,\n10:00: yours\n") is None
    assert format_of("1700000.M1.host:2,S", b"Return-Path: <a@b.c>\nFrom: a@b.c\n\nx") == "email"
    assert format_of("notes.txt", b"Received: three parcels\n") == "text"


def test_a_file_without_headers_is_no_message() -> None:
    with pytest.raises(Unreadable, match="not an e-mail message"):
        read(b"just words\n\nand more")


def test_attachments_repeat_no_long_header_of_their_message() -> None:
    parts = b"--q\nContent-Disposition: attachment; filename=a.txt\n\nx\n" * 20
    found = read(
        b"From: a@b\nTo: " + b"a" * 100_000 + b" <a@b>\nMessage-ID: <m@b>\n"
        b"Content-Type: multipart/mixed; boundary=q\n\n" + parts + b"--q--\n"
    )
    assert len(found.children) == 20
    assert {len(child.metadata["to"]) for _, child in found.children} == {10_000}
