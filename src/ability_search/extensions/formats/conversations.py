"""Chat logs and the exports of chat programs, recognised by their content.

=================  ===========================================================================
JSON, JSON Lines   objects with ``role``, ``speaker``, ``author`` or ``name``, and ``content``,
                   ``text`` or ``message``, also as ``messages`` of an object
logs of agents     JSON Lines, some of which have such an object as ``message`` or ``payload``
                   beside its time; a line with a ``summary`` is the title
ChatGPT            ``conversations.json``: for each conversation the tree ``mapping``; the
                   branch that ends in ``current_node`` is read
Claude             ``conversations.json``: for each conversation ``chat_messages``
Slack              the files of a channel, one per day: messages with ``ts``; names of users are
                   those in the file itself, else their ids
WhatsApp           text: a date, a time and a name begin each message
=================  ===========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain, pairwise
from typing import Any

import msgspec

from ability_search.extensions.formats.conversation_turns import (
    CONVERSATION,
    Conversation,
    Turn,
    conversation_text,
    is_conversation,
)
from ability_search.extensions.formats.escapes import read_plain
from ability_search.text.formats import Bounds, Extracted, Unreadable

_SPEAKERS = ("speaker", "role", "author", "sender", "from", "name")
_TEXTS = ("content", "text", "message", "parts")
_TIMES = ("time", "timestamp", "created_at", "create_time", "date", "ts")
_ENVELOPES = ("message", "payload")
_TOOLS = frozenset({"tool", "function"})
"""Roles of messages that are results of tools, which nobody says."""
_MESSAGE = re.compile(r'"(?:role|speaker|author|sender|ts)"\s*+:')
_SEARCHED = 1 << 16
"""Bytes at the beginning of a file that show whether it may be a conversation."""
_SLACK_TIME = re.compile(r"\d{9,11}\.\d{6}")
_MENTION = re.compile(r"<@([A-Z0-9]{2,32})(?:\|[^>\n]{0,128})?>")
_WHATSAPP = re.compile(
    r"^[\u200e\u200f]*\[?(?P<a>\d{1,4})[./-](?P<b>\d{1,2})[./-](?P<c>\d{2,4}),? "
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?"
    r"(?:[ \u202f](?P<half>[AaPp])\.?[Mm]\.?)?(?:\]| -) (?P<rest>[^\n]*+)",
    re.MULTILINE,
)
_FEW = 2
"""Messages that make a text an export of WhatsApp."""


def read_json(name: str, text: str, bounds: Bounds) -> Extracted:
    """Read JSON or JSON Lines: a conversation, or else the text unchanged."""
    begins = is_conversation(text) or _MESSAGE.search(text[:_SEARCHED])
    found = _conversation(text, _json_conversations) if begins else None
    return found or read_plain(name, text, bounds, format="json")


def read_text(name: str, text: str, bounds: Bounds, *, format: str | None = "text") -> Extracted:
    """Read a text: a conversation exported from WhatsApp, or else the text unchanged."""
    begins = is_conversation(text) or _WHATSAPP.match(text[:_SEARCHED])
    found = _conversation(text, _whatsapp_conversations) if begins else None
    return found or read_plain(name, text, bounds, format=format)


read_unknown = partial(read_text, format=None)
"""Reads a text of unknown format, as :func:`read_text` does."""


def read_conversation(name: str, text: str, bounds: Bounds) -> Extracted:
    """Read a conversation in any of the formats.

    Raises:
        Unreadable: if it is none.
    """
    found = _conversation(text, conversations_of)
    if found is None:
        raise Unreadable(
            "not a conversation: expected JSON with role and content of each message, or an export"
            " of ChatGPT, Claude, Slack or WhatsApp"
        )
    return found


def conversations_of(text: str) -> list[Conversation]:
    """Return the conversations of a text in any of the formats; none if it is in none of them."""
    return _json_conversations(text) or _whatsapp_conversations(text)


def _conversation(text: str, read: Callable[[str], list[Conversation]]) -> Extracted | None:
    if is_conversation(text):
        return Extracted(text, CONVERSATION)
    found = read(text)
    content = conversation_text(found)
    if not content:
        return None
    turns = [turn for each in found for turn in each.turns]
    times = sorted(turn.time for turn in turns if turn.time)
    about: dict[str, Any] = {"speakers": list(dict.fromkeys(turn.speaker for turn in turns))}
    if times:
        about |= {"created": times[0], "modified": times[-1]}
    title = found[0].title if len(found) == 1 else ""
    return Extracted(content, CONVERSATION, title or None, None, about)


def _json_conversations(text: str) -> list[Conversation]:
    with suppress(RecursionError):
        try:
            return _conversations_in(msgspec.json.decode(text))
        except msgspec.DecodeError:
            # Strings in JSON may contain other separators; the last line may be unfinished.
            *lines, last = text.split("\n")
            try:
                values = [msgspec.json.decode(line) for line in lines if line.strip()]
            except msgspec.DecodeError:
                return []
            with suppress(msgspec.DecodeError):
                values += [msgspec.json.decode(last)] if last.strip() else []
            return _conversations_in(values) if values else []
    return []


def _conversations_in(value: Any) -> list[Conversation]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in values):
        return []
    if logged := [message for each in values if (message := _enclosed(each))]:
        title = next((text for each in values if (text := _text(each.get("summary")))), "")
        turns = [turn for each in logged if (turn := _turn(each))]
        return [Conversation(turns, title)] if turns else []
    if any("mapping" in each or "chat_messages" in each or "messages" in each for each in values):
        return [found for each in values if (found := _exported(each))]
    if all(_SLACK_TIME.fullmatch(str(each.get("ts", ""))) for each in values):
        return [Conversation(_slack_turns(values))]
    if not all(map(_is_message, values)):
        return []
    turns = [turn for each in values if (turn := _turn(each))]
    return [Conversation(turns)] if turns else []


def _enclosed(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message in a line of an agent's log, with the time of the line."""
    for name in _ENVELOPES:
        message = value.get(name)
        if isinstance(message, Mapping) and isinstance(message.get("role"), str):
            return {**message, "time": _first(message, _TIMES) or _first(value, _TIMES)}
    return None


def _is_message(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a message: texts with an author may be books or reviews.

    Its text may be null or empty, as in a message that only calls a tool.
    """
    if not _text(_first(value, _SPEAKERS)) or not any(name in value for name in _TEXTS):
        return False
    return any(value.get(name) for name in ("role", "speaker")) or (
        _moment(_first(value, _TIMES)) is not None
    )


def _exported(value: Mapping[str, Any]) -> Conversation | None:
    """Return a conversation of an export of ChatGPT or Claude, or an object with messages."""
    mapping = value.get("mapping")
    if isinstance(mapping, Mapping):
        messages: Any = _branch(dict(mapping), value.get("current_node"))
    else:
        messages = value.get("chat_messages") or value.get("messages")
    if not isinstance(messages, list):
        return None
    turns = [turn for each in messages if isinstance(each, Mapping) and (turn := _turn(each))]
    title = value.get("title") or value.get("name")
    return Conversation(turns, title if isinstance(title, str) else "") if turns else None


def _branch(mapping: dict[str, Any], last: Any) -> list[Any]:
    """Return the messages from the root of the tree to the node ``last``, or to its newest."""
    if not isinstance(last, str) or last not in mapping:
        last = next(reversed(mapping), None)
    messages: list[Any] = []
    seen: set[str] = set()
    while isinstance(last, str) and last in mapping and last not in seen:
        seen.add(last)
        node = mapping[last] if isinstance(mapping[last], Mapping) else {}
        message = node.get("message")
        about = message.get("metadata") if isinstance(message, Mapping) else None
        hidden = isinstance(about, Mapping) and about.get("is_visually_hidden_from_conversation")
        if isinstance(message, Mapping) and not hidden:
            messages.append(message)
        last = node.get("parent")
    return messages[::-1]


def _turn(message: Mapping[str, Any]) -> Turn | None:
    speaker = _text(_first(message, _SPEAKERS))
    text = _text(_first(message, _TEXTS))
    if not speaker or text is None or speaker in _TOOLS:
        return None
    return Turn(speaker, text, _moment(_first(message, _TIMES)))


def _first(message: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((message[name] for name in names if message.get(name) not in (None, "")), None)


def _text(value: Any) -> str | None:
    """Return the text of a value: a text, an object with one, or a list of such."""
    if isinstance(value, Mapping):
        value = _first(value, ("role", "name", "parts", "text", "content"))
    if isinstance(value, list):
        return "\n".join(text for each in value if _is_said(each) and (text := _text(each)))
    return value if isinstance(value, str) else None


def _is_said(part: Any) -> bool:
    """Return whether a part of a message is text, not the call of a tool or its result."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return not isinstance(kind, str) or kind.endswith("text")


def _moment(value: Any) -> str | None:
    """Return an instant in UTC: of seconds or milliseconds since 1970, or of ISO 8601."""
    try:
        if isinstance(value, str) and not _SLACK_TIME.fullmatch(value):
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            seconds = float(value)
            seconds = seconds / 1000 if seconds > 1e11 else seconds
            moment = datetime.fromtimestamp(seconds, tz=UTC)
        else:
            return None
        return _utc(moment)
    except (ValueError, OverflowError, OSError):
        return None


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _slack_turns(messages: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """Return messages of Slack in order of time; mentions of known users are their names."""
    found = sorted(messages, key=lambda each: float(each["ts"]))
    names = {str(each["user"]): name for each in found if (name := _slack_name(each))}

    def named(match: re.Match[str]) -> str:
        return f"@{names.get(match[1], match[1])}"

    return [
        Turn(
            names.get(str(each.get("user")))
            or _slack_name(each)
            or str(_first(each, ("user", "username", "bot_id")) or "unknown"),
            _MENTION.sub(named, text),
            _moment(each["ts"]),
        )
        for each in found
        if isinstance(text := each.get("text"), str)
    ]


def _slack_name(message: Mapping[str, Any]) -> str:
    profile = message.get("user_profile")
    if "user" not in message or not isinstance(profile, Mapping):
        return ""
    return str(_first(profile, ("display_name", "real_name", "name")) or "")


def _whatsapp_conversations(text: str) -> list[Conversation]:
    if not _WHATSAPP.match(text):
        return []
    day_first = not any(int(each["b"]) > 12 for each in _WHATSAPP.finditer(text))
    turns = []
    for head, following in pairwise(chain(_WHATSAPP.finditer(text), [None])):
        assert head is not None
        speaker, colon, begin = head["rest"].partition(": ")
        if colon:  # without one, it is a notice such as "Ann created the group"
            end = following.start() if following else len(text)
            said = f"{begin}{text[head.end() : end]}"
            turns.append(Turn(speaker.strip("~ \u200e\u202a\u202c"), said, _dated(head, day_first)))
    return [Conversation(turns)] if len(turns) >= _FEW else []


def _dated(head: re.Match[str], day_first: bool) -> str | None:
    """Return the time of a message; WhatsApp writes it without a zone, it counts as UTC."""
    a, b, c = int(head["a"]), int(head["b"]), int(head["c"])
    if len(head["a"]) == 4:
        year, month, day = a, b, c
    else:
        day, month = (a, b) if day_first else (b, a)
        year = c if c > 99 else 2000 + c
    hour = int(head["hour"])
    if half := (head["half"] or "").lower():
        hour = hour % 12 + (12 if half == "p" else 0)
    try:
        minute, second = int(head["minute"]), int(head["second"] or 0)
        return _utc(datetime(year, month, day, hour, minute, second, tzinfo=UTC))
    except ValueError:
        return None
