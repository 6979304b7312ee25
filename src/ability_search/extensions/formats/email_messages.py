"""E-mail messages as Markdown, and mailboxes; what is in them becomes documents of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from mimetypes import guess_extension
from typing import Any, NamedTuple

from ability_search.extensions.formats.encodings import read_as
from ability_search.extensions.formats.foreign_files import known, read_attachment
from ability_search.extensions.formats.html import read_html
from ability_search.extensions.formats.markdown_writer import Composer
from ability_search.text.formats import EMPTY, Bounds, Extracted, Unreadable, too_much_text
from ability_search.text.loaders import decoded

_SHOWN = ("From", "To", "Cc", "Date")
_SIGNATURES = frozenset(
    f"application/{each}" for each in ("pgp-signature", "pkcs7-signature", "x-pkcs7-signature")
)
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_BLANK_LINE = re.compile(r"\r?\n[ \t\f]*(?:\r?\n)+")
_HEADING = re.compile(r"^(#{1,5} )", re.MULTILINE)
_SEPARATOR = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From \S++ [^\n:]*+:\d\d[^\n]*+\n")
_QUOTED = re.compile(rb"^>(>*+From )", re.MULTILINE)
_MOST_ATTACHMENTS = 1000
_MOST_MESSAGES = 10_000
_LONGEST_NAME = 120


def read_email(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a message: the subject, the addresses and the text; the attachments are its children.

    The text is that of the plain version if there is one, else of the HTML version. Images within
    the text and signatures are left out. Attachments have the metadata of the message, unless they
    have their own.

    Args:
        name: Name of the file.
        data: The message (RFC 5322).
        bounds: Limits for the text of the message and all attachments.

    Raises:
        Unreadable: if it is no message.
    """
    message = _parsed(data)
    if not any(message[field] for field in ("From", "Date", "Subject", "Received", "To")):
        raise Unreadable("not an e-mail message, though its name says so")
    composer = Composer(bounds)
    subject = _header(message, "Subject")
    composer.heading(1, subject)
    composer.paragraph("\n".join(f"{n}: {text}" for n in _SHOWN if (text := _header(message, n))))
    body, text = _body(message)
    if body is not None:
        if body.get_content_subtype() == "html":
            composer.verbatim(_HEADING.sub(r"#\1", read_html(name, text.encode(), bounds).text))
        else:
            for block in _BLANK_LINE.split(text):
                composer.paragraph(block)
    date = message["Date"]
    moment = getattr(date, "datetime", None)
    metadata = known(
        **{"from": _header(message, "From")},
        to=_header(message, "To"),
        cc=_header(message, "Cc"),
        created=moment.isoformat() if moment else None,
        message_id=_header(message, "Message-ID"),
    )

    def parts() -> Iterator[_Part]:
        for number, part in enumerate(_attachments(message, body), start=1):
            kind = part.get_content_type()
            suffix = ".eml" if kind == "message/rfc822" else guess_extension(kind) or ""
            file = _label(part.get_filename() or "") or f"part {number}{suffix}"
            yield _Part(file, file, _bytes(part), {**metadata, "attachment": file}, title=file)

    found = Extracted(composer.text, "markdown", subject or None)
    names, found = _with_parts(found, "attachment", parts(), _MOST_ATTACHMENTS, bounds)
    return replace(found, metadata={**metadata, "attachments": names} if names else metadata)


def read_mbox(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a mailbox (RFC 4155): a text with the number of messages, which are its children.

    A message is named by its Message-ID, or without one by its number. Arguments and errors are as
    for :func:`read_email`.
    """
    starts = list(_SEPARATOR.finditer(data))
    if not starts:
        raise Unreadable(EMPTY if not data.strip() else "not a mailbox, though its name says so")
    composer = Composer(bounds)
    composer.heading(1, name)
    composer.paragraph(f"{len(starts)} e-mail message{'s' if len(starts) > 1 else ''}")
    ends = [*(each.start() for each in starts[1:]), len(data)]

    def parts() -> Iterator[_Part]:
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
            message = _QUOTED.sub(rb"\1", data[start.end() : end])
            named = message_from_bytes(message, policy=policy.default)["Message-ID"]
            label = _label(str(named or "").strip("<> \t")) or str(number)
            yield _Part(label, "message.eml", message, {})

    found = Extracted(composer.text, "markdown", metadata={"messages": len(starts)})
    return _with_parts(found, "message", parts(), _MOST_MESSAGES, bounds)[1]


class _Part(NamedTuple):
    """A document in a file."""

    label: str
    file: str
    """Name of its own file."""
    data: bytes
    metadata: Mapping[str, Any]
    """Metadata that it has in addition to its own."""
    title: str = ""
    """Title if it has none; else its name."""


def _with_parts(
    file: Extracted, kind: str, parts: Iterable[_Part], most: int, bounds: Bounds
) -> tuple[list[str], Extracted]:
    """Return the names of the documents in a file, and the file with them, within its bounds.

    A document is named ``kind=name``, followed by ``(2)``, ... if repeated. The documents in it
    become documents of the same file, beside the ``most`` ones.
    """
    room = bounds.text - len(file.text.encode())
    children: list[tuple[str, Extracted]] = []
    unread: list[tuple[str, str]] = []
    labels: Counter[str] = Counter()
    names: list[str] = []
    for each in parts:
        labels[each.label] += 1
        name = f"{each.label} ({labels[each.label]})" if labels[each.label] > 1 else each.label
        part = f"{kind}={name}"
        if len(names) == most:
            unread.append((part, f"only the first {most} are read"))
            break
        names.append(name)
        try:
            found = read_attachment(each.file, each.data, bounds)
        except Unreadable as exc:
            unread.append((part, str(exc)))
            continue
        own = replace(found, title=found.title or each.title or name, children=(), unread=())
        own = replace(own, metadata={**each.metadata, **own.metadata})
        inner = [(f"{part}#{label}", child) for label, child in found.children]
        for label, child in [(part, own), *inner]:
            room -= len(child.text.encode())
            if room < 0:
                unread.append((label, str(too_much_text(bounds))))
            else:
                children.append((label, child))
        unread += [(f"{part}#{label}", reason) for label, reason in found.unread]
    return names, replace(file, children=tuple(children), unread=tuple(unread))


def _parsed(data: bytes) -> EmailMessage:
    """Parse a message; header bytes that are not UTF-8 have the charset of its text, or any."""
    message = message_from_bytes(data, policy=policy.default)
    head = _HEADER_END.split(data, maxsplit=1)[0]
    try:
        head.decode()
    except UnicodeDecodeError:
        body, _ = _body(message)
        charset = body.get_content_charset("utf-8") if body else "utf-8"
        utf8 = _decoded(head, charset).encode() + data[len(head) :]
        return message_from_bytes(utf8, policy=policy.default)
    return message


def _body(message: EmailMessage) -> tuple[MIMEPart | None, str]:
    """Return the part with the text and the text; a blank version only if there is no other."""
    found = [message.get_body((each,)) for each in ("plain", "html")]
    bodies = [
        (each, _decoded(_bytes(each), each.get_content_charset("utf-8"))) for each in found if each
    ]
    written = (each for each in bodies if each[1].strip())
    return next(written, bodies[0] if bodies else (None, ""))


def _attachments(
    part: MIMEPart, body: MIMEPart | None, *, alternative: bool = False
) -> Iterator[MIMEPart]:
    """Yield the parts except the text, its other versions, images within it, and signatures."""
    if part.is_multipart() and part.get_content_maintype() == "multipart":
        alternative = alternative or part.get_content_subtype() == "alternative"
        for each in part.iter_parts():
            yield from _attachments(each, body, alternative=alternative)
        return
    kind = part.get_content_maintype()
    version = alternative and kind == "text" and not part.get_filename()
    within = part.get_content_disposition() == "inline" or part["Content-ID"] is not None
    inline = kind == "image" and within
    if not (part is body or version or inline or part.get_content_type() in _SIGNATURES):
        yield part


def _label(name: str) -> str:
    """Return a name on one line, of limited length and without lone surrogates."""
    printable = "".join(each if each.isprintable() else " " for each in name)
    label = " ".join(printable.encode("utf-8", "replace").decode().split())
    return label if len(label) <= _LONGEST_NAME else f"…{label[1 - _LONGEST_NAME :]}"


def _bytes(part: MIMEPart) -> bytes:
    if part.get_content_type() == "message/rfc822":
        inner: Any = part.get_payload(0)
        return bytes(inner.as_bytes())
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _decoded(data: bytes, charset: str) -> str:
    """Decode bytes by their charset, if that is valid, else by detection."""
    try:
        return read_as(data, charset)
    except (LookupError, UnicodeDecodeError):
        return decoded(data)


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(str(message[name] or "").split())
