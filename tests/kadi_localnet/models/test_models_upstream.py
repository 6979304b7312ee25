"""Requests to a server of models elsewhere, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, Response
from tests.kadi_localnet.models.upstreams import KEY, Upstreamed

from kadi_localnet.models import Upstream
from kadi_localnet.models.config import ModelsConfig
from kadi_localnet.models.errors import DeadlinePassed, ModelSetupError, UpstreamFailed
from kadi_localnet.models.upstream import UpstreamClient

Ask = Callable[..., Any]


@pytest.fixture
async def upstream(serve: Any) -> AsyncIterator[tuple[Upstreamed, Ask]]:
    server = Upstreamed("echo", lambda body: {"echo": body["text"]})
    async with serve(server.app()) as url, httpx.AsyncClient() as client:

        async def ask(*, timeout: float = 10, api_key: str | None = None, **settings: Any) -> Any:
            config = Upstream(url + "/", ("m",), api_key=KEY, **settings)
            one = UpstreamClient("m", config, client, route="echo")
            return json.loads(await one.ask({"text": "hi"}, timeout=timeout, api_key=api_key))

        yield server, ask


async def test_the_request_names_the_model_and_shows_the_key(
    upstream: tuple[Upstreamed, Ask],
) -> None:
    server, ask = upstream
    assert await ask() == {"echo": "hi"}
    await ask(api_key="mine")
    request = {"model": "m", "text": "hi"}
    assert server.asked == [(request, f"Bearer {KEY}"), (request, "Bearer mine")]


async def test_failures_that_may_pass_are_tried_again(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    server.failures = [
        Response(status_code=429, headers={"Retry-After": "0"}),
        Response(status_code=503, headers={"Retry-After": format_datetime(datetime.now(UTC))}),
        Response(status_code=500, headers={"Retry-After": "soon"}),
    ]
    assert await ask() == {"echo": "hi"}
    assert len(server.asked) == 4


async def test_attempts_end(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    server.failures = [Response(status_code=502, headers={"Retry-After": "0"}) for _ in range(5)]
    with pytest.raises(UpstreamFailed, match="returned 502"):
        await ask(attempts=2)
    assert len(server.asked) == 2


async def test_a_pause_beyond_the_deadline_is_not_begun(upstream: tuple[Upstreamed, Ask]) -> None:
    server, ask = upstream
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1))
    server.failures = [Response(status_code=429, headers={"Retry-After": later})]
    async with asyncio.timeout(5):
        with pytest.raises(UpstreamFailed, match="429") as caught:
            await ask(timeout=30)
    assert caught.value.retry_after == pytest.approx(3600, abs=60)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": f"wrong key {KEY}"}},
        {"error": f"wrong key {KEY}"},
        {"message": f"wrong key {KEY}"},
        {"detail": f"wrong key {KEY}"},
    ],
)
async def test_a_refusal_is_told_once_and_without_the_key(
    upstream: tuple[Upstreamed, Ask], said: dict[str, Any]
) -> None:
    server, ask = upstream
    server.failures = [JSONResponse(said, status_code=401)]
    with pytest.raises(UpstreamFailed, match="returned 401: wrong key") as caught:
        await ask()
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


async def test_a_server_that_does_not_answer_is_left_at_the_deadline(
    upstream: tuple[Upstreamed, Ask],
) -> None:
    server, ask = upstream
    server.forever = asyncio.Event()
    with pytest.raises(DeadlinePassed):
        await ask(timeout=0.2)
    server.forever.set()


async def test_an_answer_over_the_limit_is_not_read_to_its_end(
    upstream: tuple[Upstreamed, Ask],
) -> None:
    with pytest.raises(UpstreamFailed, match="more than 5 bytes"):
        await upstream[1](max_response_bytes=5)


async def failure(**settings: Any) -> UpstreamFailed:
    """Of a server that is not there."""
    config = Upstream("http://127.0.0.1:9", ("m",), **settings)
    async with httpx.AsyncClient() as client:
        with pytest.raises(UpstreamFailed) as caught:
            await UpstreamClient("m", config, client, route="echo").ask({}, timeout=10)
    return caught.value


async def test_no_server_is_an_error_after_the_attempts() -> None:
    assert "ConnectError" in str(await failure(attempts=2))


async def test_a_key_that_no_header_can_hold_stays_untold() -> None:
    error = await failure(api_key="sk-\u2603\n", attempts=1)
    assert "sk-" not in str(error)
    assert error.__cause__ is None


def test_settings_that_cannot_work_are_refused_and_keys_not_shown() -> None:
    with pytest.raises(ModelSetupError, match="base_url"):
        Upstream("localhost:11434", ("m",))
    with pytest.raises(ModelSetupError, match="name the models"):
        Upstream("http://localhost", ())
    assert KEY not in repr(ModelsConfig(upstreams=(Upstream("http://h", ("m",), api_key=KEY),)))
