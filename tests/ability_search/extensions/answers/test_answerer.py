"""Answers from the passages of a search, by a model behind a server that streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.answers.chat_server import ChatServer, chat_server, said

from ability_search.config.loader import load_settings
from ability_search.errors import DatabaseUnavailable
from ability_search.extensions.answers.answerer import (
    REFUSAL,
    Answerer,
    AskInput,
    AskResult,
    Search,
    open_answerer,
)
from ability_search.extensions.answers.citations import Sentence
from ability_search.search.response import Hit, QueryResult
from kadi_client import Connection, NotConnected

TEXTS = {
    "backups.md": "Backups run every night at 02:00 and are kept for 30 days.",
    "restore.md": "Alice Miller restores the archive from tape.",
}

RECORDED = Path(__file__).parents[3] / "data" / "chat_streams" / "llama_cpp"
"""Answers of the server of llama-cpp-python 0.3.36 with SmolLM2-135M-Instruct to the prompt for
these texts with this boundary; the last one has too long a prompt."""
BOUNDARY = "0123456789abcdef0123456789abcdef"


def found(**changed: Any) -> dict[str, Any]:
    """What search-query answers."""
    hits = [
        Hit(
            chunk_id=f"docs:{source}:0",
            source=source,
            title="",
            content=text,
            score=0.5,
            metadata={},
            chunk_index=0,
            total_chunks=1,
            scores={},
            matched_via=["semantic"],
        )
        for source, text in TEXTS.items()
    ]
    answer = QueryResult(
        results=hits,
        count=len(hits),
        query="",
        collection="docs",
        mode="hybrid",
        relevance=0.8,
        timings={"total": 1.0},
    )
    return answer.model_copy(update=changed).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )


class Asking:
    """An answerer over a search that a test plays and a model behind a real server."""

    def __init__(self, server: ChatServer, **environ: str) -> None:
        self.server = server
        self.searched: list[Mapping[str, Any]] = []
        self.result: dict[str, Any] = found()
        self.environ = environ

    async def search(self, tool_input: Mapping[str, Any]) -> Mapping[str, Any]:
        self.searched.append(tool_input)
        return self.result

    @asynccontextmanager
    async def answerer(self, search: Search | None = None) -> AsyncIterator[Answerer]:
        names = {
            "SEARCH_EXPANSION_TRANSPORT": "api",
            "SEARCH_EXPANSION_API_URL": self.server.url,
            "SEARCH_EXPANSION_MODEL": "usual",
        }
        settings = load_settings({**names, **self.environ}, self.server.home)

        async def connect() -> Connection:
            raise NotConnected("no broker")

        async with open_answerer(settings, search or self.search, connect) as answerer:
            yield answerer

    async def events(self, **asked: Any) -> list[Any]:
        async with self.answerer() as answerer:
            question = {"query": "When do backups run?", **asked}
            return [event async for event in answerer.stream(AskInput.model_validate(question))]

    async def answer(self, **asked: Any) -> AskResult:
        *_, last = await self.events(**asked)
        assert isinstance(last, AskResult)
        return last


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    async with chat_server(tmp_path) as server:
        yield Asking(server)


async def test_sentences_are_streamed_checked_and_cited(asking: Asking) -> None:
    asking.server.says = "Backups run every night at 02:00 [1]. They are kept 90 days [1]. \
Alice Miller restores the archive from tape [1]."
    passages, *sentences, answer = await asking.events(collection="docs", filter={"kind": "x"})
    assert isinstance(passages, QueryResult)
    assert [each.support for each in sentences] == ["full", "none", "full"]
    assert sentences[1].missing == ["90"]
    assert answer.outcome == "answered"
    assert answer.answer == (
        "Backups run every night at 02:00. [1] Alice Miller restores the archive from tape. [2]"
    )
    assert answer.sentences == sentences
    assert [hit.source for hit in answer.passages] == list(TEXTS)
    assert answer.timings.keys() == {"search", "firstSentence", "total"}
    assert asking.searched == [
        {
            "collection": "docs",
            "query": "When do backups run?",
            "filter": {"kind": "x"},
            "maxResultTokens": 3000,
        }
    ]


async def test_what_the_model_is_sent(asking: Asking) -> None:
    await asking.answer(chatModel="mine", limit=3)
    (request,) = asking.server.requests
    assert (request["model"], request["stream"], request["temperature"]) == ("mine", True, 0)
    system, user = (message["content"] for message in request["messages"])
    boundary = user.splitlines()[1]
    assert len(boundary) == 32
    assert boundary in system
    assert user.startswith(f"[1]\n{boundary}\nbackups.md\n{TEXTS['backups.md']}\n{boundary}\n\n[2]")
    await asking.answer()
    assert asking.server.requests[1]["messages"][1]["content"].splitlines()[1] != boundary


async def test_the_first_sentence_comes_before_the_model_has_finished(asking: Asking) -> None:
    asking.server.says = "Backups run every night [1]. They "
    asking.server.hold = asyncio.Event()
    async with asking.answerer() as answerer:
        events = answerer.stream(AskInput(query="When do backups run?"))
        assert isinstance(await anext(events), QueryResult)
        sentence = await anext(events)
        assert isinstance(sentence, Sentence)
        assert sentence.text == "Backups run every night."
        assert not asking.server.hold.is_set()
        await events.aclose()


async def test_a_refusal_of_the_model_is_one(asking: Asking) -> None:
    asking.server.says = f"{REFUSAL}."
    answer = await asking.answer()
    assert (answer.outcome, answer.answer, answer.sentences) == ("not_in_sources", None, [])
    assert len(answer.passages) == 2


async def test_an_answer_that_no_passage_supports_is_a_refusal(asking: Asking) -> None:
    asking.server.says = "They run at 05:00 [1]. Bob Smith knows [2]."
    answer = await asking.answer()
    assert (answer.outcome, answer.answer) == ("not_in_sources", None)
    assert [each.support for each in answer.sentences] == ["none", "none"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"relevance": 0.1}, "answer_floor"), ({"results": []}, "nothing was found")],
)
async def test_without_relevant_passages_the_model_is_not_asked(
    asking: Asking, changed: dict[str, Any], reason: str
) -> None:
    asking.result = found(**changed)
    answer = await asking.answer()
    assert answer.outcome == "not_in_sources"
    assert reason in (answer.reason or "")
    assert not asking.server.requests


async def test_without_a_model_there_are_the_passages(asking: Asking) -> None:
    asking.server.status = 500
    answer = await asking.answer()
    assert (answer.outcome, answer.answer) == ("passages", None)
    assert "(500)" in (answer.reason or "")
    assert len(answer.passages) == 2


async def test_without_a_broker_there_are_the_passages(asking: Asking) -> None:
    asking.environ["SEARCH_EXPANSION_TRANSPORT"] = "broker"
    answer = await asking.answer()
    assert answer.outcome == "passages"
    assert "chat-completion" in (answer.reason or "")


async def test_a_slow_model_ends_with_the_sentences_so_far(asking: Asking) -> None:
    asking.environ["SEARCH_ANSWER_TIMEOUT"] = "1"
    asking.server.says = "Backups run every night [1]. They "
    asking.server.hold = asyncio.Event()
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"
    assert "longer than 1 s" in (answer.warnings or [""])[0]


async def test_a_stream_that_breaks_off_is_not_taken_for_complete(asking: Asking) -> None:
    asking.server.says = "Backups run every night [1]. They are kept for"
    asking.server.done = False
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"
    assert "broke off" in (answer.warnings or [""])[0]


async def test_a_server_that_does_not_stream_answers_whole(asking: Asking) -> None:
    asking.server.body = json.dumps(said("Backups run every night [1]."))
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"


async def test_failures_of_the_search_are_raised(asking: Asking) -> None:
    async def fails(_tool_input: Mapping[str, Any]) -> Mapping[str, Any]:
        raise DatabaseUnavailable("gone")

    async with asking.answerer(fails) as answerer:
        with pytest.raises(DatabaseUnavailable):
            await answerer.answer(AskInput(query="When do backups run?"))


@pytest.fixture
def recorded(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.setattr(
        "ability_search.extensions.answers.answerer.secrets.token_hex", lambda _: BOUNDARY
    )
    asking.server.kind = "text/event-stream; charset=utf-8"
    return asking


async def test_a_question_that_a_model_repeats_is_no_answer(recorded: Asking) -> None:
    recorded.server.body = (RECORDED / "answer.txt").read_text(encoding="utf-8")
    assert "When" in recorded.server.body
    answer = await recorded.answer()
    assert answer.answer == "Backups run every night at 02:00 and are kept for 30 days. [1]"
    assert len(answer.sentences) == 1
    assert answer.warnings is None


async def test_a_citation_without_a_sentence_is_none(asking: Asking) -> None:
    asking.server.says = "[1]\nQuestion: When do backups run? [1]\nBackups run every night [1]."
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"
    assert len(answer.sentences) == 1


async def test_what_is_copied_from_the_prompt_and_a_cut_sentence_are_left_out(
    recorded: Asking,
) -> None:
    recorded.server.body = (RECORDED / "no_answer.txt").read_text(encoding="utf-8")
    answer = await recorded.answer(query="Who is the chief executive of the company?")
    (said,) = answer.sentences
    assert (said.text, said.support) == ("The chief executive of the company is:", "none")
    assert (answer.outcome, answer.answer) == ("not_in_sources", None)
    assert "answer was cut after 600 tokens. Raise answer_tokens" in (answer.warnings or [""])[0]


async def test_what_has_no_word_or_was_said_before_is_left_out(asking: Asking) -> None:
    asking.server.says = "```\nBackups run every night [1].\n```\nBackups run every night [2].\n```"
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"
    assert len(answer.sentences) == 1
    assert answer.warnings is None


async def test_an_answer_ends_when_the_model_repeats_itself(asking: Asking) -> None:
    # So does SmolLM2-135M-Instruct, up to the limit of its tokens.
    loop = "It is created by the team. I'm glad to hear that. " * 50
    asking.server.says = f"Backups run every night [1]. {loop}"
    asking.server.hold = asyncio.Event()
    answer = await asking.answer()
    assert answer.answer == "Backups run every night. [1]"
    assert len(answer.sentences) == 3
    assert "repeats itself" in (answer.warnings or [""])[0]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_prompt_that_is_too_long_names_the_setting(
    recorded: Asking, streamed: bool
) -> None:
    recorded.server.body = "" if streamed else (RECORDED / "too_long.json").read_text()
    recorded.server.status = 200 if streamed else 400
    answer = await recorded.answer()
    assert answer.outcome == "passages"
    assert "lower answer_passage_tokens" in (answer.reason or "")
