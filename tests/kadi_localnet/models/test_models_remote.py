"""Models of another server, over real HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.responses import JSONResponse
from tests.kadi_localnet.models.upstreams import KEY, Upstreamed

from kadi_localnet.models import Upstream
from kadi_localnet.models.errors import UpstreamFailed
from kadi_localnet.models.remote import RemoteModel, read_answer


def by_length(request: Mapping[str, Any]) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": i, "embedding": [float(len(text)), 1.0]}
        for i, text in enumerate(request["input"])
    ]
    return {"data": data[::-1], "usage": {"prompt_tokens": 9}, "model": "x"}


async def test_texts_pass_through_and_come_back_in_order(serve: Any) -> None:
    server = Upstreamed("embeddings", by_length)
    async with serve(server.app()) as url, httpx.AsyncClient() as client:
        model = RemoteModel("m", Upstream(url, ("m",), api_key=KEY), client)
        embedded = await model.embed(["a", "bbb", "cc"], timeout=10, dimensions=2)
        await model.embed(["a"], timeout=10, api_key="mine")
    assert embedded.vectors[:, 0].tolist() == [1, 3, 2]
    assert embedded.vectors.dtype == np.float32
    assert embedded.tokens == 9
    body, authorization = server.asked[0]
    assert (body["model"], body["input"], body["dimensions"]) == ("m", ["a", "bbb", "cc"], 2)
    assert authorization == f"Bearer {KEY}"
    assert server.asked[1][1] == "Bearer mine"


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": "Unrecognized request argument supplied: encoding_format"}},
        {"detail": [{"loc": ["body", "encoding_format"], "input": "a text"}]},
    ],
)
async def test_a_server_that_refuses_the_format_is_asked_without_it(
    serve: Any, refusal: dict[str, Any]
) -> None:
    server = Upstreamed("embeddings", by_length)
    server.failures = [JSONResponse(refusal, 422)]
    async with serve(server.app()) as url, httpx.AsyncClient() as client:
        model = RemoteModel("m", Upstream(url, ("m",)), client)
        for _ in range(2):
            assert (await model.embed(["a"], timeout=10)).vectors.tolist() == [[1, 1]]
        server.failures = [JSONResponse({"detail": [{"loc": ["body"], "input": "a text"}]}, 422)]
        with pytest.raises(UpstreamFailed, match="returned 422: body$"):
            await model.embed(["a text"], timeout=10)
    asked = ["encoding_format" in request for request, _ in server.asked]
    assert asked == [True, False, False, False]


def body(*rows: Any, **more: Any) -> bytes:
    return json.dumps({"data": list(rows), **more}).encode()


def test_base64_is_taken_too_and_indices_may_be_missing() -> None:
    packed = base64.b64encode(np.array([1.5, -2], "<f4").tobytes()).decode()
    embedded = read_answer(body({"embedding": packed}, {"embedding": [3, 4]}), 2)
    assert embedded.vectors.tolist() == [[1.5, -2], [3, 4]]
    assert embedded.tokens == 0


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<html>", "not a list of embeddings"),
        (body({"embedding": [1, "x"]}), "not a list of embeddings"),
        (body({"embedding": [1.0], "index": 0}), "1 embeddings for 2 texts"),
        (
            body({"embedding": [1], "index": 1}, {"embedding": [1], "index": 1}),
            "2 embeddings for 2 texts",
        ),
        (body({"embedding": [1]}, {"embedding": [1, 2]}), "different or no dimensions"),
        (body({"embedding": []}, {"embedding": []}), "different or no dimensions"),
        (body({"embedding": [1e39]}, {"embedding": [1]}), "not finite"),
        (b'{"data": [{"embedding": [NaN]}, {"embedding": [1]}]}', "not a list of embeddings"),
        (body({"embedding": "AAA"}, {"embedding": [1]}), "base64"),
        (body({"embedding": "AAAA"}, {"embedding": [1]}), "base64"),
    ],
)
def test_an_unusable_answer_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(UpstreamFailed, match=said):
        read_answer(raw, 2)
