"""Rerankers of another server, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.kadi_localnet.models.upstreams import KEY, Upstreamed

from kadi_localnet.models import Upstream
from kadi_localnet.models.errors import UpstreamFailed
from kadi_localnet.models.remote import RemoteReranker, read_scores


def by_length(request: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of a tenth a character, best first."""
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": len(text) / 10, "document": {"text": text}}
        for index, text in enumerate(request["documents"])
    ]
    results.sort(key=lambda result: -result["relevance_score"])
    return {"id": "1", "results": results, "usage": {"total_tokens": 9}}


async def test_texts_pass_through_and_scores_come_back_in_order(serve: Any) -> None:
    server = Upstreamed("rerank", by_length)
    async with serve(server.app()) as url, httpx.AsyncClient() as client:
        reranker = RemoteReranker("m", Upstream(url, ("m",), api_key=KEY), client)
        reranked = await reranker.rerank("q", ["a", "bbb", "cc \ud83d"], timeout=10)
        await reranker.rerank("q", ["a"], timeout=10, api_key="mine")
    assert reranked.scores == [0.1, 0.3, 0.4]
    assert reranked.tokens == 9
    body, authorization = server.asked[0]
    assert body == {"model": "m", "query": "q", "documents": ["a", "bbb", "cc \ufffd"]}
    assert authorization == f"Bearer {KEY}"
    assert server.asked[1][1] == "Bearer mine"


def answered(*results: Any, **more: Any) -> bytes:
    return json.dumps({"results": results, **more}).encode()


def scored(index: Any, score: Any) -> dict[str, Any]:
    return {"index": index, "relevance_score": score}


def test_logits_pass_as_they_are_and_what_is_not_needed_may_be_missing() -> None:
    reranked = read_scores(answered(scored(1, -11.5), scored(0, 7)), 2)
    assert list(reranked.scores) == [7.0, -11.5]
    assert reranked.tokens == 0
    assert read_scores(answered(scored(0, 1), usage={"prompt_tokens": 3}), 1).tokens == 0


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<html>", "not a list of scores"),
        (b'{"results": null}', "not a list of scores"),
        (b'[{"index": 0, "score": 1}]', "not a list of scores"),
        (answered({"index": 0}, scored(1, 1)), "not a list of scores"),
        (answered(scored(0, "1"), scored(1, 1)), "not a list of scores"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "not a list of scores"),
        (b'{"results": [{"index": 0, "relevance_score": 1e999}]}', "not a list of scores"),
        (answered(scored(0, 1)), "1 scores for 2 texts"),
        (answered(scored(0, 1), scored(0, 1)), "2 scores for 2 texts"),
        (answered(scored(0, 1), scored(2, 1)), "2 scores for 2 texts"),
        (answered(scored(0, 1), scored(1, 1), scored(2, 1)), "3 scores for 2 texts"),
    ],
)
def test_an_unusable_answer_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(UpstreamFailed, match=said):
        read_scores(raw, 2)
