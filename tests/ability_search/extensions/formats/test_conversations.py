"""Conversations: chat logs and exports are recognised by content and cut into turns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ability_search.extensions.formats.conversation_turns import (
    Conversation,
    Turn,
    conversation_text,
    is_conversation,
)
from ability_search.text import loaders
from ability_search.text.chunkers.strategies import chunk, joined

BOUNDS = loaders.Bounds(1 << 20, 1 << 20)


def read(name: str, value: Any) -> loaders.Extracted:
    """Read a file as the loaders do: a text, or a value as JSON."""
    data = (value if isinstance(value, str) else json.dumps(value)).encode()
    return loaders.extract(name, data, loaders.format_of(name, data), BOUNDS)


def turns(found: loaders.Extracted) -> list[tuple[Any, ...]]:
    """What each turn says, who, when and where."""
    assert found.format == "conversation"
    return [
        (each.content, each.metadata["turn"], each.metadata.get("time"), each.breadcrumb)
        for each in chunk(found.text, format=found.format)
    ]


def test_a_log_whose_last_line_is_being_written_is_a_conversation() -> None:
    line = '{"role": "user", "content": "One\u2028two"}'
    found = read("log.jsonl", f'{line}\n{line}\n{{"role": "user", "cont')
    assert [each[1] for each in turns(found)] == [1, 2]
    for text in (f"{line}\nno JSON\n{line}", f"{line}\nno JSON\n", '{"role": "user", "cont'):
        assert read("log.jsonl", text).format == "json"


def test_json_lines_of_messages_are_turns() -> None:
    lines = [
        {"role": "user", "content": "When do\nbackups run?", "time": "2026-05-01T12:30:00+02:00"},
        {"role": "assistant", "content": "[sic] At two.", "time": 1777631460},
        {"role": "user", "content": "Thanks"},
    ]
    for name, text in (
        ("log.jsonl", "\n".join(map(json.dumps, lines))),
        ("log.json", json.dumps(lines)),
        ("log.json", json.dumps({"title": "", "messages": lines})),
    ):
        found = read(name, text)
        assert turns(found) == [
            ("user: When do\nbackups run?", 1, "2026-05-01T10:30:00Z", ""),
            ("assistant: [sic] At two.", 2, "2026-05-01T10:31:00Z", ""),
            ("user: Thanks", 3, None, ""),
        ]
        assert found.metadata == {
            "speakers": ["user", "assistant"],
            "created": "2026-05-01T10:30:00Z",
            "modified": "2026-05-01T10:31:00Z",
        }


@pytest.mark.parametrize("empty", [None, "", []])
def test_messages_without_text_are_no_turns(empty: object) -> None:
    calls = [{"id": "1", "function": {"name": "search", "arguments": "{}"}}]
    lines = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": empty, "tool_calls": calls},
        {"role": "assistant", "content": "At two."},
    ]
    found = read("log.jsonl", "\n".join(map(json.dumps, lines)))
    assert [turn[:2] for turn in turns(found)] == [("user: When?", 1), ("assistant: At two.", 2)]


AGENT_LOGS: dict[str, list[Any]] = {
    "message": [
        {"type": "summary", "summary": "Backups", "leafUuid": "c"},
        {"type": "file-history-snapshot", "messageId": "a", "snapshot": {}},
        {
            "type": "user",
            "message": {"role": "user", "content": "When do they run?"},
            "timestamp": "2026-05-01T10:30:00.123Z",
        },
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Look it up."},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            "timestamp": "2026-05-01T10:30:05Z",
        },
        {
            "type": "user",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "content": [{"type": "text", "text": "x"}]}],
            },
            "timestamp": "2026-05-01T10:30:06Z",
        },
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "At two."}]},
            "timestamp": "2026-05-01T10:31:00Z",
        },
    ],
    "payload": [
        {"type": "session_meta", "payload": {"id": "1", "summary": None}, "summary": "Backups"},
        *(
            {
                "timestamp": f"2026-05-01T10:{time}Z",
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": role,
                    "content": [{"type": kind, "text": text}],
                },
            }
            for time, role, kind, text in (
                ("30:00", "user", "input_text", "When do they run?"),
                ("30:05", "assistant", "output_text", "I look."),
                ("31:00", "assistant", "output_text", "At two."),
            )
        ),
        {"type": "response_item", "payload": {"type": "function_call", "name": "shell"}},
        {"type": "response_item", "payload": {"role": "tool", "content": "x"}},
    ],
}


@pytest.mark.parametrize("log", AGENT_LOGS)
def test_the_log_of_an_agent_has_what_was_said_without_calls_of_tools(log: str) -> None:
    found = read("log.jsonl", "\n".join(map(json.dumps, AGENT_LOGS[log])))
    assert found.title == "Backups"
    assert turns(found) == [
        ("user: When do they run?", 1, "2026-05-01T10:30:00Z", "Backups"),
        ("assistant: I look.", 2, "2026-05-01T10:30:05Z", "Backups"),
        ("assistant: At two.", 3, "2026-05-01T10:31:00Z", "Backups"),
    ]


def chatgpt(title: str, *, current: str) -> dict[str, Any]:
    """A conversation as `conversations.json` has it, with an edited question."""

    def node(name: str, parent: str | None, role: str, text: str, **about: Any) -> dict[str, Any]:
        message = {
            "id": name,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": 1714559400.5,
            "content": {"content_type": "text", "parts": [text]},
            "metadata": about,
        }
        return {"id": name, "message": message, "parent": parent, "children": []}

    nodes = [
        {"id": "root", "message": None, "parent": None, "children": ["s"]},
        node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
        node("a", "s", "user", "Wrong question"),
        node("b", "s", "user", "How long does dough rest?"),
        node("c", "b", "assistant", "An hour."),
    ]
    return {
        "title": title,
        "create_time": 1714559400.1,
        "mapping": {each["id"]: each for each in nodes},
        "current_node": current,
    }


def test_an_export_of_chatgpt_is_read_along_its_current_branch() -> None:
    found = read("conversations.json", [chatgpt("Bread", current="c"), chatgpt("", current="a")])
    assert turns(found) == [
        ("user: How long does dough rest?", 1, "2024-05-01T10:30:00Z", "Bread"),
        ("assistant: An hour.", 2, "2024-05-01T10:30:00Z", "Bread"),
        ("user: Wrong question", 1, "2024-05-01T10:30:00Z", "2"),
    ]
    assert read("c.json", [chatgpt("Bread", current="c")]).title == "Bread"


def test_an_export_of_claude_has_its_messages() -> None:
    message = {
        "uuid": "8f1",
        "sender": "human",
        "text": "Which knot holds a loop?",
        "content": [{"type": "text", "text": "Which knot holds a loop?", "citations": []}],
        "created_at": "2026-05-01T10:30:00.123456Z",
        "attachments": [],
    }
    answer = message | {"sender": "assistant", "text": "", "content": [{"text": "The bowline."}]}
    export = {"uuid": "1", "name": "Knots", "account": {}, "chat_messages": [message, answer]}
    assert turns(read("conversations.json", [export])) == [
        ("human: Which knot holds a loop?", 1, "2026-05-01T10:30:00Z", "Knots"),
        ("assistant: The bowline.", 2, "2026-05-01T10:30:00Z", "Knots"),
    ]


def test_a_day_of_slack_has_names_and_is_in_order() -> None:
    profile = {"real_name": "Ann Lee", "display_name": "ann"}
    day = [
        {"type": "message", "user": "U2", "text": "<@U1> done", "ts": "1714559460.000200"},
        {
            "type": "message",
            "user": "U1",
            "text": "deploy <https://example.org>?",
            "ts": "1714559400.000100",
            "user_profile": profile,
        },
        {"subtype": "bot_message", "username": "ci", "text": "green", "ts": "1714559500.000000"},
    ]
    assert turns(read("2024-05-01.json", day)) == [
        ("ann: deploy <https://example.org>?", 1, "2024-05-01T10:30:00Z", ""),
        ("U2: @ann done", 2, "2024-05-01T10:31:00Z", ""),
        ("ci: green", 3, "2024-05-01T10:31:40Z", ""),
    ]


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        (
            ("[13.05.24, 21:05:30]", "[14.05.24, 07:00:00]"),
            ("2024-05-13T21:05:30Z", "2024-05-14T07:00:00Z"),
        ),
        (
            ("5/13/24, 9:05 PM -", "5/14/24, 12:00 AM -"),
            ("2024-05-13T21:05:00Z", "2024-05-14T00:00:00Z"),
        ),
        (
            ("13/05/2024, 21:05 -", "14/05/2024, 07:00 -"),
            ("2024-05-13T21:05:00Z", "2024-05-14T07:00:00Z"),
        ),
    ],
)
def test_a_text_of_whatsapp_has_dates_of_its_locale(
    stamps: tuple[str, str], times: tuple[str, str]
) -> None:
    one, two = stamps
    text = f"{one} Messages are encrypted.\n{one} Ann: Hello\nsecond line\n{two} Bob B: Hi: you\n"
    assert turns(read("chat.txt", text)) == [
        ("Ann: Hello\nsecond line", 1, times[0], ""),
        ("Bob B: Hi: you", 2, times[1], ""),
    ]


@pytest.mark.parametrize(
    ("name", "value", "format"),
    [
        ("books.json", [{"author": "Ann", "text": "A novel"}], "json"),
        ("data.json", {"messages": "none", "role": "x"}, "json"),
        ("data.jsonl", '{broken\n{"role": "user", "content": "x"}', "json"),
        ("mixed.json", [{"role": "user", "content": "x"}, {"role": "user"}], "json"),
        ("numbers.json", [1, 2], "json"),
        ("notes.txt", "13.05.2024, 21:05 - a single line", "text"),
        ("notes.txt", "Ann: hello\nBob: hi", "text"),
    ],
)
def test_other_texts_stay_as_they_are(name: str, value: Any, format: str) -> None:
    found = read(name, value)
    assert found.format == format
    assert found.text == (value if isinstance(value, str) else json.dumps(value))


def test_a_file_that_is_said_to_be_a_conversation_must_be_one() -> None:
    with pytest.raises(loaders.Unreadable, match="not a conversation: expected JSON with role"):
        loaders.extract("a.txt", b"hello", "conversation", BOUNDS)


def test_the_text_of_a_conversation_is_read_again_and_restored() -> None:
    long = "This sentence is long. " * 60
    first = Conversation([Turn("Ann: A", f"[x] {long}\n[-] Bob: no", "2026-05-01T10:30:00Z")], "T")
    text = conversation_text([first, Conversation([Turn("", "hi\f\r\nho"), Turn("Bob", " ")])])
    assert is_conversation(text)
    passages = chunk(text, format="conversation", max_tokens=64)
    assert len(passages) > 3
    assert {each.metadata["speaker"] for each in passages} == {"Ann A", "unknown"}
    assert [each.metadata["turn"] for each in passages] == [1] * len(passages)
    rows, end = [], 0
    for each in passages:
        rows.append({"lead": text[end : each.start], "content": each.content})
        end = each.end
    assert rows[0]["lead"] + joined(rows) + text[end:] == text
    same = loaders.extract("any", text.encode(), None, BOUNDS)
    assert (same.text, same.format) == (text, "conversation")


def test_a_text_without_turns_is_one_passage_without_a_speaker() -> None:
    [passage] = chunk("Only notes.\n\nNobody speaks.", format="conversation")
    assert (passage.content, dict(passage.metadata)) == ("Only notes.\n\nNobody speaks.", {})


def test_what_is_missing_or_wrong_in_a_message_is_left_out() -> None:
    export = [chatgpt("Bread", current="gone"), {"mapping": {}}, {"chat_messages": "none"}]
    assert [each[0] for each in turns(read("c.json", export))] == [
        "user: How long does dough rest?",
        "assistant: An hour.",
    ]
    lines = [
        {"speaker": "Ann", "text": "Hi", "time": "soon"},
        {"speaker": "Bob", "text": "Hello", "time": True},
        {"speaker": "Cy", "text": "Hey", "time": 1e300},
    ]
    assert [each[2] for each in turns(read("c.json", lines))] == [None, None, None]
    chat = "2024-05-13, 21:05 - Ann: Hello\n2024-13-44, 21:05 - Bob: Hi"
    assert [each[2] for each in turns(read("c.txt", chat))] == ["2024-05-13T21:05:00Z", None]
    forced = loaders.extract("chat", chat.encode(), "conversation", BOUNDS)
    assert len(turns(forced)) == 2
    places: list[Any] = [[], {}, [{"a": 1}]]
    for nowhere in places:
        odd = {"mapping": {"a": {"parent": nowhere}}, "current_node": nowhere}
        assert read("odd.json", [odd, {"role": "user"}]).format == "json"
    deep = '[{"role": "user", "content": ' + "[" * 100_000
    assert read("deep.json", deep).format == "json"


@pytest.mark.parametrize("depth", [600, 900])
@pytest.mark.parametrize("field", ["role", "content"])
def test_a_file_with_a_value_nested_too_deeply_is_no_conversation(field: str, depth: int) -> None:
    line = json.dumps([{"role": "a", "content": "x"} | {field: "HERE"}])
    deep = line.replace('"HERE"', f"{'[' * depth}1{']' * depth}")
    assert read("deep.json", deep).format == "json"
