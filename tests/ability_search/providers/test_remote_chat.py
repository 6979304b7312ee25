"""RemoteChat over calls of the test's making and over a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.ability_search.extensions.answers.chat_server import chat_server
from tests.ability_search.model_servers import KEY, Answer, asking, http_api, raising, telling

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ChatUnavailable, ConfigurationError
from ability_search.extensions.localstack.deployment import require_secrets
from ability_search.ports import Invoke
from ability_search.providers.chat import CHAT, RemoteChat, read_completion
from ability_search.providers.http_transport import OverHttp
from ability_search.providers.model_servers import ModelServers
from ability_search.providers.transports import OverBroker
from kadi_client import Call, Connection, RemoteError, Tool
from kadi_client.errors import FrameTooLarge
from kadi_localnet.broker import serve_broker


def saying(content: Any) -> Answer:
    return lambda _request: {"choices": [{"index": 0, "message": {"content": content}}]}


class Manager:
    """A network whose only tool answers by a function, which may raise or wait."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Mapping[str, Any]] = []
        self.timeouts: list[float] = []

    async def __call__(
        self,
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 0,
        target_agent: str | None = None,
    ) -> Any:
        assert tool == "chat-completion"
        self.requests.append(tool_input)
        self.timeouts.append(timeout)
        answer = self.answer(tool_input)
        return await answer if asyncio.iscoroutine(answer) else answer


def chat(invoke: Invoke, *, api_key: SecretStr | None = None, **options: Any) -> RemoteChat:
    defaults: dict[str, Any] = {"model": None, "timeout": 5.0}
    defaults |= {"breaker_failures": 100, "breaker_reset": 30.0}
    return RemoteChat(OverBroker(CHAT, invoke, api_key=api_key), **{**defaults, **options})


async def failure(client: RemoteChat, *, model: str | None = None) -> ChatUnavailable:
    with pytest.raises(ChatUnavailable) as raised:
        await client.complete("s", "u", model=model, timeout=5, enough=99)
    assert KEY not in f"{raised.value} {raised.value.hint}"
    assert raised.value.hint
    return raised.value


def test_the_error_has_no_wire_code_of_its_own() -> None:
    assert ChatUnavailable.code == "internal"


async def test_requests_and_answers_have_the_openai_format() -> None:
    manager = Manager(saying("a\nb"))
    assert (
        await chat(manager).complete("do this", "with that", model="m", timeout=5, enough=99)
        == "a\nb"
    )
    assert manager.requests == [
        {
            "messages": [
                {"role": "system", "content": "do this"},
                {"role": "user", "content": "with that"},
            ],
            "max_tokens": 256,
            "temperature": 0,
            "model": "m",
        }
    ]


async def test_the_model_of_the_call_overrides_the_settings_and_none_is_omitted() -> None:
    manager = Manager(saying("x"))
    for model, default in (("mine", "usual"), (None, "usual"), (None, None)):
        client = chat(manager, model=default, api_key=SecretStr(KEY))
        await client.complete("s", "u", model=model, timeout=5, enough=99)
    assert [request.get("model") for request in manager.requests] == ["mine", "usual", None]
    assert "model" not in manager.requests[-1]
    assert {request["api_key"] for request in manager.requests} == {KEY}


async def test_the_shorter_timeout_applies() -> None:
    async def hang(_request: Mapping[str, Any]) -> Any:
        await asyncio.Event().wait()

    manager = Manager(hang)
    for own, callers in ((0.05, 60.0), (60.0, 0.05)):
        async with asyncio.timeout(5):
            with pytest.raises(ChatUnavailable, match=r"within 0\.05 s"):
                await chat(manager, timeout=own).complete(
                    "s", "u", model=None, timeout=callers, enough=99
                )
    assert manager.timeouts == pytest.approx([0.05, 0.05], abs=0.01)


async def test_a_model_that_keeps_failing_is_skipped() -> None:
    manager = Manager(raising(RemoteError("the GPU caught fire")))
    client = chat(manager, breaker_failures=3)
    for _ in range(3):
        assert (await failure(client)).retryable
    assert "3 times in a row" in str(await failure(client))
    assert len(manager.requests) == 3


async def test_refusals_and_unusable_answers_do_not_open_the_breaker() -> None:
    manager = Manager(raising(RemoteError("model 'x' is not served")))
    client = chat(manager, breaker_failures=2)
    for answer in (manager.answer, saying(" ")):
        manager.answer = answer
        for _ in range(3):
            await failure(client)
    manager.answer = saying("well")
    assert await client.complete("s", "u", model=None, timeout=5, enough=99) == "well"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"text": "old"}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": None}}]},
        {"choices": [{"message": {"content": ["part"]}}]},
        {"choices": [{"message": {"content": " \n"}}]},
    ],
    ids=str,
)
async def test_answers_without_text_are_refused(answer: Any) -> None:
    with pytest.raises(ChatUnavailable):
        read_completion(answer)
    assert not (await failure(chat(Manager(lambda _: answer)))).retryable


@pytest.mark.parametrize("opening", ["", "<think>\n"], ids=["in the prompt", "in the answer"])
async def test_what_a_model_thinks_is_not_its_answer(opening: str) -> None:
    client = chat(Manager(saying(f"{opening}Let me see.\n</think>\n\nGranite.")))
    assert (await client.complete("s", "u", model=None, timeout=5, enough=99)).strip() == "Granite."
    for thought in ("<think>Let me", "<think>Let me</think>\n"):
        error = await failure(chat(Manager(saying(thought))))
        assert "only thought" in str(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("model 'm' is not served", "refused the model 'm'"),
        ("the messages are too long", "refused the texts"),
        ("Incorrect API key provided", "refused the key"),
    ],
)
async def test_raised_and_returned_refusals_are_classified_by_text(error: str, said: str) -> None:
    for answer in telling(RemoteError(error)):
        told = await failure(chat(Manager(answer), api_key=SecretStr(KEY)), model="m")
        assert said in str(told)
        assert not told.retryable


@pytest.mark.parametrize("error", [FrameTooLarge(9, 5), UnicodeEncodeError("utf-8", "x", 0, 1, "")])
async def test_a_text_that_does_not_fit_into_a_message_is_refused(error: Exception) -> None:
    assert "refused the texts" in str(await failure(chat(Manager(raising(error)))))


async def test_calls_over_a_broker_with_and_without_the_tool() -> None:
    async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
        return saying(tool_input["messages"][1]["content"].upper())(tool_input)

    async with serve_broker("127.0.0.1", 0) as broker, Connection(broker.url) as client:
        talking = chat(client.invoke)
        error = await failure(talking)
        assert error.retryable
        assert "provides chat-completion" in error.hint
        tool = Tool("chat-completion", "Talk.", {"type": "object"}, handle)
        async with Connection(broker.url, tools=[tool]):
            assert await talking.complete("s", "loud", model=None, timeout=5, enough=99) == "LOUD"
        await client.close()
        assert (await failure(talking)).retryable


def settings(**environ: str) -> Settings:
    return load_settings(environ, Path("/"))


async def unasked(*_: Any, **__: Any) -> Any:
    raise AssertionError("the broker is not asked")


async def test_a_model_over_http_gets_the_key_as_a_token_and_no_log_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with http_api(saying("pets")) as api:
        chosen = settings(
            SEARCH_EXPANSION_TRANSPORT="api",
            SEARCH_EXPANSION_API_URL=f"{api.url}/v1",
            SEARCH_EXPANSION_API_KEY=KEY,
            SEARCH_EXPANSION_MODEL="llama3.2",
        )
        async with ModelServers(chosen, unasked).chat() as client:
            assert (
                await client.complete("sys", "secret words", model=None, timeout=5, enough=99)
                == "pets"
            )
            api.prepare(401, {"error": {"message": f"invalid API key {KEY}"}})
            refusal = await failure(client)
    ((path, headers, body), _) = api.seen
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body["model"] == "llama3.2"
    assert body["messages"][1] == {"role": "user", "content": "secret words"}
    assert "SEARCH_EXPANSION_API_KEY" in refusal.hint
    assert KEY not in caplog.text
    assert "secret words" not in caplog.text
    assert KEY not in repr(chosen)


async def test_fields_that_a_server_refuses_are_left_out_from_then_on() -> None:
    async with http_api(saying("pets")) as api, asking(CHAT, api) as transport:
        client = RemoteChat(transport, timeout=5.0, breaker_failures=1, breaker_reset=30.0)
        text = "Unsupported parameter: 'max_tokens' is not supported with this model."
        api.prepare(400, {"error": {"message": text}})
        for _ in range(2):
            assert await client.complete("s", "u", model="m", timeout=5, enough=99) == "pets"
    assert [sorted(body) for _, _, body in api.seen] == [
        ["max_tokens", "messages", "model", "stream", "temperature"],
        ["messages", "model", "stream", "temperature"],
        ["messages", "model", "stream", "temperature"],
    ]


async def test_an_api_needs_an_address_and_a_model() -> None:
    with pytest.raises(ConfigurationError, match="expansion_model must be set"):
        settings(SEARCH_EXPANSION_TRANSPORT="api")
    incomplete = settings(SEARCH_EXPANSION_TRANSPORT="api", SEARCH_EXPANSION_MODEL="m")
    with pytest.raises(ConfigurationError, match="required because expansion_transport is api"):
        require_secrets(incomplete)
    with pytest.raises(ConfigurationError, match="SEARCH_EXPANSION_API_URL is missing"):
        async with ModelServers(incomplete, unasked).chat():
            pass


WRITTEN = Path(__file__).parents[2] / "data" / "chat_streams"
STREAMS = {path.stem: path.read_bytes() for path in sorted(WRITTEN.glob("*.txt"))}
"""Streams written after the forms of these servers, not recorded from them."""


def test_the_streams_are_there() -> None:
    assert list(STREAMS) == ["ollama", "openai", "vllm"]


async def streamed(client: RemoteChat) -> str:
    parts = client.stream("s", "u", model="m", timeout=5, tokens=99)
    return "".join([part async for part in parts])


@pytest.mark.parametrize("server", STREAMS)
async def test_streams_of_servers_are_read(server: str) -> None:
    async with http_api(saying("pets")) as api, asking(CHAT, api) as transport:
        client = RemoteChat(transport, timeout=5.0, breaker_failures=1, breaker_reset=30.0)
        api.prepare(200, STREAMS[server], content_type="text/event-stream; charset=utf-8")
        assert await streamed(client) == "Hello"
        assert api.seen[0][2]["stream"] is True
        assert await streamed(client) == "pets"


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b'data: {"error":{"message":"out of memory"}}\n\n', "with an error"),
        (STREAMS["openai"].replace(b"data: [DONE]", b""), "broke off"),
        (b"data: [DONE]\n\n", "empty answer"),
        (b"data: {\n\n", "did not return JSON"),
        (b"data: [1]\n\n", "not in the OpenAI shape"),
        (b'data: {"choices":[1]}\n\n', "not in the OpenAI shape"),
    ],
)
async def test_streams_that_cannot_be_used_are_failures(stream: bytes, problem: str) -> None:
    async with http_api(saying("pets")) as api, asking(CHAT, api) as transport:
        client = RemoteChat(transport, timeout=5.0, breaker_failures=9, breaker_reset=30.0)
        api.prepare(200, stream, content_type="text/event-stream")
        with pytest.raises(ChatUnavailable, match=problem):
            await streamed(client)


async def test_a_tool_on_the_network_answers_in_one_part() -> None:
    manager = Manager(saying("pets"))
    assert await streamed(chat(manager)) == "pets"
    assert manager.requests[0]["max_tokens"] == 99
    assert "stream" not in manager.requests[0]


@pytest.mark.parametrize("thought", ["", "<think> So. Do they? </think> "])
async def test_a_model_that_does_not_end_is_stopped(tmp_path: Path, thought: str) -> None:
    async with chat_server(tmp_path) as server, httpx.AsyncClient() as web:
        server.says = f"{thought}NO {'because of it ' * 20}"
        server.hold = asyncio.Event()
        transport = OverHttp(CHAT, web, server.url, api_key=None)
        client = RemoteChat(transport, timeout=5.0, breaker_failures=1, breaker_reset=30.0)
        said = await client.complete("s", "u", model="m", timeout=5, enough=32)
        assert said.strip().startswith("NO because of it")
        await asyncio.wait_for(server.dropped.wait(), 5)


async def test_an_answer_that_is_cut_is_used_as_far_as_it_goes() -> None:
    cut = STREAMS["openai"].replace(b'"finish_reason":"stop"', b'"finish_reason":"length"')
    assert b'"length"' in cut
    async with http_api(saying("pets")) as api, asking(CHAT, api) as transport:
        client = RemoteChat(transport, timeout=5.0, breaker_failures=1, breaker_reset=30.0)
        api.prepare(200, cut, content_type="text/event-stream")
        assert await client.complete("s", "u", model="m", timeout=5, enough=99) == "Hello"
        api.prepare(200, cut, content_type="text/event-stream")
        with pytest.raises(ChatUnavailable, match="cut after 99 tokens"):
            await streamed(client)
