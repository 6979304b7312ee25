"""E-mail messages as Markdown, with their attachments as sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from typing import Any

from ability_search.text.front_matter import read_front_matter
from ability_search.text.loaders.extracts import Bounds, Extracted, Unreadable, known
from ability_search.text.loaders.html import read_html
from ability_search.text.loaders.markdown_writer import Composer
from ability_search.text.loaders.text_files import decoded

_SHOWN = ("From", "To", "Cc", "Date")
_BLANK_LINE = re.compile(r"\r?\n[ \t\f]*(?:\r?\n)+")
_HEADING = re.compile(r"^(#{1,5} )", re.MULTILINE)
_FENCE = re.compile(r"(^ {0,3}(```+|~~~+).*?(?:^ {0,3}\2|\Z))", re.MULTILINE | re.DOTALL)
_MOST_PARTS = 1000

Reader = Callable[[str, bytes], Extracted]


def read_email(name: str, data: bytes, bounds: Bounds, *, read: Reader) -> Extracted:
    """Read a message: the subject, the addresses, the text and the attachments.

    The text is that of the plain version if there is one, else of the HTML version. Each attachment
    is a section with its name; images within the text are left out.

    Args:
        name: Name of the file.
        data: The message (RFC 5322).
        bounds: Limits for the text.
        read: Reads an attachment by its name.

    Raises:
        Unreadable: if it is no message.
    """
    message = message_from_bytes(data, policy=policy.default)
    if not any(message[field] for field in ("From", "Date", "Subject", "Received", "To")):
        raise Unreadable("not an e-mail message, though its name says so")
    composer = Composer(bounds)
    subject = _header(message, "Subject")
    composer.heading(1, subject)
    composer.paragraph("\n".join(f"{n}: {text}" for n in _SHOWN if (text := _header(message, n))))
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = _decoded(body)
        if body.get_content_subtype() == "html":
            composer.verbatim(_HEADING.sub(r"#\1", read_html(name, text.encode(), bounds).text))
        else:
            for block in _BLANK_LINE.split(text):
                composer.paragraph(block)
    unread = list(_add_attachments(composer, message, read))
    date = message["Date"]
    moment = getattr(date, "datetime", None)
    metadata = known(
        **{"from": _header(message, "From")},
        to=_header(message, "To"),
        cc=_header(message, "Cc"),
        created=moment.isoformat() if moment else None,
        message_id=_header(message, "Message-ID"),
    )
    names = [part.get_filename() for part in _attachments(message)]
    if attachments := [name for name in names if name]:
        metadata["attachments"] = attachments
    return Extracted(composer.text, "markdown", subject or None, None, metadata, tuple(unread))


def _add_attachments(composer: Composer, message: EmailMessage, read: Reader) -> Iterator[str]:
    """Add the attachments as sections; yield what could not be read, with the reason."""
    for number, part in enumerate(_attachments(message), start=1):
        inner = part.get_content_type() == "message/rfc822"
        name = part.get_filename() or (f"message {number}.eml" if inner else f"part {number}")
        try:
            found = read(name, _bytes(part))
        except Unreadable as exc:
            yield f"attachment={name}: {exc}"
            continue
        yield from (f"attachment={name}#{each}" for each in found.unread)
        composer.heading(2, name)
        if found.format == "markdown":
            composer.verbatim(_below(found.text[read_front_matter(found.text).end :]))
        elif found.language or found.format in ("code", "json", "csv"):
            composer.code(found.text, found.language or "")
        else:
            for block in _BLANK_LINE.split(found.text):
                composer.paragraph(block)


def _attachments(message: EmailMessage) -> list[EmailMessage]:
    parts = list(message.iter_attachments()) if message.is_multipart() else []
    return [
        part
        for part in parts[:_MOST_PARTS]
        if not (part.get_content_maintype() == "image" and _is_inline(part))
    ]


def _is_inline(part: EmailMessage) -> bool:
    return part.get_content_disposition() == "inline" or part["Content-ID"] is not None


def _bytes(part: MIMEPart) -> bytes:
    if part.get_content_type() == "message/rfc822":
        inner: Any = part.get_payload(0)
        return bytes(inner.as_bytes())
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _decoded(part: MIMEPart) -> str:
    """Return the text of a part by its charset, if that is valid, else by detection."""
    data = _bytes(part)
    try:
        return data.decode(part.get_content_charset("utf-8"))
    except (LookupError, UnicodeDecodeError):
        return decoded(data)


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(str(message[name] or "").split())


def _below(markdown: str) -> str:
    """Return Markdown with its headings two levels deeper."""
    pieces = _FENCE.split(markdown)
    text = pieces[::3]
    moved = [_HEADING.sub(r"#\1", _HEADING.sub(r"#\1", each)) for each in text]
    return "".join(each for pair in zip(moved, [*pieces[1::3], ""], strict=True) for each in pair)
