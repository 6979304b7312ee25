"""Sentence types of queries, and quotations in them."""

from __future__ import annotations

import pytest

from ability_search.extensions.understanding.sentence_types import (
    asks_how,
    is_instruction,
    is_question,
    is_request,
    is_statement,
    masked,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("show me caching notes", True),
        ("please find articles", True),
        ("I'm looking for recipes", True),
        ("i need examples", True),
        ("Could you describe our caching?", True),
        ("Zeige mir Notizen", True),
        ("Décris la ville", True),
        ("Muéstrame recetas", True),
        ("请介绍缓存", True),
        ("i need to deploy", False),
        ("shows about cooking", False),
        ("caching notes", False),
    ],
)
def test_requests_are_recognized(text: str, expected: bool) -> None:
    assert is_request(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how do I expire tokens", True),
        ("what happens on a timeout", True),
        ("can it run offline", True),
        ("ways to deploy", True),
        ("wie kann ich suchen", True),
        ("comment payer sans carte", True),
        ("cómo puedo pagar", True),
        ("如何登录", True),
        ("can you show me notes", False),
        ("notes on caching", False),
        ("which notes mention caching", False),
    ],
)
def test_questions_how_are_recognized(text: str, expected: bool) -> None:
    assert asks_how(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("which notes mention caching", True),
        ("notes on caching?", True),
        ("Welche Städte gibt es", True),
        ("¿Qué ciudades hay", True),
        ("有哪些城市？", True),
        ("notes on caching", False),
    ],
)
def test_questions_are_recognized(text: str, expected: bool) -> None:
    assert is_question(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("remove all files", True),
        ("vim delete all lines", True),
        ("Unix: kill all processes", True),
        ("update the date column", True),
        ("update policy", False),
        ("show me how to delete files", False),
    ],
)
def test_instructions_are_recognized(text: str, expected: bool) -> None:
    assert is_instruction(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The server was restarted.", True),
        ("the error occurs", True),
        ("We moved to Berlin", True),
        ("papers that are about turbulence", False),
        ("are papers about turbulence kept?", False),
        ("show me what is new", False),
        ("notes on caching", False),
    ],
)
def test_statements_are_recognized(text: str, expected: bool) -> None:
    assert is_statement(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('find "not found" errors', "find QQQQQQQQQQQ errors"),
        ("“a” and „b“ and «c» and `d`", "QQQ and QQQ and QQQ and QQQ"),
        ("the 'last' word", "the QQQQQQ word"),
        ("don't say it's theirs'", "don't say it's theirs'"),
        ('an "open quotation', 'an "open quotation'),
        ('"two\nlines"', '"two\nlines"'),
        ('""', '""'),
        ("", ""),
    ],
)
def test_quotations_are_masked_with_their_length(text: str, expected: str) -> None:
    assert masked(text) == expected
