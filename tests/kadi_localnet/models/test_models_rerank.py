from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.kadi_client.calls import PlainCall

from ability_search.extensions.cli.http_server import serve_http
from kadi_localnet.models import (
    ModelDirectory,
    ModelsConfig,
    ModelSetupError,
    is_reranker,
)
from kadi_localnet.models.directory import find_files
from kadi_localnet.models.encoder import CrossEncoder
from kadi_localnet.models.errors import (
    DeadlinePassed,
    InvalidRequest,
    ModelNotServed,
    ModelsError,
    RequestTooLarge,
)
from kadi_localnet.models.requests import RerankRequest, read_request, rerank_answer
from kadi_localnet.models.service import Models, open_models

TinyModel = Callable[..., Path]
TEXTS = ["grey", "red green", "green blue blue", "red"]
SHARED = [0, 2, 1, 1]
"""Words of each text that occur in "red green"."""


def logistic(logits: Sequence[float]) -> np.ndarray:
    scores: np.ndarray = 1 / (1 + np.exp(-np.array(logits, float)))
    return scores


def load(path: Path, **settings: Any) -> CrossEncoder:
    return CrossEncoder.load(replace(find_files(ModelDirectory(path=path)), **settings))


@pytest.fixture
async def models(tiny_reranker: TinyModel, tiny: TinyModel) -> AsyncIterator[Models]:
    config = ModelsConfig(
        minilm=False,
        directories=(
            ModelDirectory(path=tiny_reranker(), aliases=("org/judge",)),
            ModelDirectory(path=tiny()),
        ),
        max_texts=4,
        max_text_bytes=20,
    )
    async with asyncio.timeout(30), open_models(config) as models:
        yield models


async def call(models: Models, **tool_input: Any) -> dict[str, Any]:
    [tool] = [tool for tool in models.tools if tool.name == "rerank"]
    answer: dict[str, Any] = await tool.handler(tool_input, PlainCall())
    return answer


class TestCrossEncoder:
    def test_scores_are_the_logistic_function_of_the_logits(self, tiny_reranker: TinyModel) -> None:
        judge = load(tiny_reranker())
        pairs = judge.tokenize(TEXTS, "red green")
        np.testing.assert_allclose(
            judge.infer(pairs)[:, 0], logistic([shared - 1 for shared in SHARED]), rtol=1e-6
        )

    def test_close_scores_stay_apart(self, tiny_reranker: TinyModel) -> None:
        judge = load(tiny_reranker(scale=18.0))
        scores = judge.infer(judge.tokenize(["red", "red red"], "red"))
        assert scores[0] < scores[1] < 1

    def test_the_longest_of_both_is_cut(self, tiny_reranker: TinyModel) -> None:
        judge = load(tiny_reranker(), max_tokens=10)
        for query, text in (("red", "green " * 50), ("red " * 50, "green")):
            [pair] = judge.tokenize([text], query)
            assert len(pair.ids) == 10
            assert np.bincount(pair.types).min() >= 2
        [pair] = judge.tokenize(["\ud83d"], "red")
        assert len(pair.ids) == 5

    def test_knows_whether_pairs_may_be_batched(self, tiny_reranker: TinyModel) -> None:
        assert load(tiny_reranker()).independent
        assert not load(tiny_reranker("shy", beside=0.5)).independent

    def test_takes_a_single_output_of_another_name(self, tiny_reranker: TinyModel) -> None:
        assert load(tiny_reranker(output="score")).independent

    def test_refuses_what_does_not_score_pairs(
        self, tiny_reranker: TinyModel, tiny: TinyModel
    ) -> None:
        with pytest.raises(ModelSetupError, match="3 logits per pair, not 1"):
            load(tiny_reranker("moods", labels=3))
        with pytest.raises(ModelSetupError, match=r"no logits among the outputs \['last_hidden"):
            load(tiny())
        with pytest.raises(ModelSetupError, match="finite"):
            load(tiny_reranker("mad", scale=float("inf")))

    def test_a_score_that_is_no_number_is_an_error(self, tiny_reranker: TinyModel) -> None:
        judge = load(tiny_reranker(scale=3e38))
        with pytest.raises(ModelsError, match="not finite"):
            judge.infer(judge.tokenize(["red red"], "red"))

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({}, True),
            ({"architectures": ["BertModel"]}, False),
            ({"architectures": []}, False),
            ({"architectures": None}, False),
        ],
    )
    def test_is_told_by_its_configuration(
        self, tiny_reranker: TinyModel, config: dict[str, Any], expected: bool
    ) -> None:
        assert is_reranker(ModelDirectory(path=tiny_reranker(**config))) is expected


async def test_the_tool_answers_in_the_shape_of_cohere_and_jina(models: Models) -> None:
    answer = await call(models, model="org/judge", query="red green", documents=TEXTS)
    assert answer["model"] == "org/judge"
    assert [row["index"] for row in answer["results"]] == [1, 2, 3, 0]
    assert [row["relevance_score"] for row in answer["results"]] == pytest.approx(
        logistic([1, 0, 0, -1])
    )
    assert answer["usage"] == {"prompt_tokens": 27, "total_tokens": 27}
    assert all(set(row) == {"index", "relevance_score"} for row in answer["results"])


async def test_results_are_cut_and_repeat_their_document_on_request(models: Models) -> None:
    documents = ["grey", {"text": "red", "title": "left alone"}]
    answer = await call(models, query="red", documents=documents, top_n=1, return_documents=True)
    assert answer["model"] == "judge"
    [row] = answer["results"]
    assert (row["index"], row["document"]) == (1, {"text": "red"})


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1), st.integers(1, 9))
def test_results_are_the_best_in_falling_order(scores: list[float], top: int) -> None:
    request = RerankRequest(query="q", documents=["x"] * len(scores), top_n=top)
    results = rerank_answer(request, "m", scores, 0)["results"]
    assert [(row["relevance_score"], -row["index"]) for row in results] == sorted(
        ((score, -index) for index, score in enumerate(scores)), reverse=True
    )[:top]


@pytest.mark.parametrize(
    ("tool_input", "said"),
    [
        ({"documents": ["x"]}, "^query: "),
        ({"query": "", "documents": ["x"]}, "^query: "),
        ({"query": "q"}, "^documents: "),
        ({"query": "q", "documents": []}, "^documents: "),
        ({"query": "q", "documents": "x"}, "^documents: "),
        ({"query": "q", "documents": ["a", 5]}, r"^documents\.1: "),
        ({"query": "q", "documents": ["a", {"body": "x"}]}, r"^documents\.1: "),
        ({"query": "q", "documents": ["a"], "top_n": 0}, "^top_n: "),
        ({"query": "q", "documents": ["a"], "model": ""}, "^model: "),
        ({"query": {"secret": 1}, "documents": ["a"], "api_key": "sk-secret"}, "^query: "),
    ],
)
async def test_a_wrong_field_is_named_and_its_value_kept_back(
    models: Models, tool_input: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        await call(models, **tool_input)
    assert caught.value.param is not None
    assert caught.value.param in said
    assert "secret" not in str(caught.value)


def test_the_field_is_named_whatever_the_number_of_errors() -> None:
    class Shape(BaseModel):
        name: str = ""
        numbers: list[int]

    for count in (1, 5_000):
        with pytest.raises(InvalidRequest) as caught:
            read_request(Shape, {"numbers": ["x"] * count}, ModelsConfig())
        assert caught.value.param == "numbers"
    with pytest.raises(InvalidRequest) as caught:
        read_request(Shape, ["no object"], ModelsConfig())
    assert caught.value.param is None


async def test_limits_are_named(models: Models) -> None:
    with pytest.raises(RequestTooLarge, match="documents: 5 texts, at most 4"):
        await call(models, query="q", documents=["x"] * 5)
    with pytest.raises(RequestTooLarge, match=r"documents\.1: 21 bytes, at most 20") as caught:
        await call(models, query="q", documents=["x", "x" * 21])
    assert caught.value.param == "documents"
    with pytest.raises(RequestTooLarge, match="query: 21 bytes, at most 20"):
        await call(models, query="q" * 21, documents=["x"])


async def test_the_callers_time_is_kept(models: Models) -> None:
    caller = PlainCall(remaining=0.0)
    [_, tool] = models.tools
    with pytest.raises(DeadlinePassed):
        await tool.handler({"query": "q", "documents": ["x"]}, caller)


async def test_a_reranker_does_not_embed_and_an_encoder_does_not_rerank(models: Models) -> None:
    assert (models.names, models.rerankers) == (("tiny",), ("judge", "org/judge"))
    with pytest.raises(ModelNotServed, match="'judge' is not served here; served: tiny"):
        await models.create_embedding({"model": "judge", "input": "x"})
    with pytest.raises(ModelNotServed, match="'tiny' is not served here; served: judge"):
        await call(models, model="tiny", query="q", documents=["x"])


async def test_without_a_model_there_is_no_tool(tiny: TinyModel, tiny_reranker: TinyModel) -> None:
    for directory, tools in ((tiny(), {"create-embedding"}), (tiny_reranker(), {"rerank"})):
        config = ModelsConfig(minilm=False, directories=(ModelDirectory(path=directory),))
        async with asyncio.timeout(30), open_models(config) as models:
            assert {tool.name for tool in models.tools} == tools
            if "rerank" not in tools:
                with pytest.raises(ModelNotServed, match="any reranker"):
                    await models.rerank({"query": "q", "documents": ["x"]})


async def test_the_tools_schema_says_what_it_takes(models: Models) -> None:
    [_, tool] = models.tools
    properties = tool.input_schema["properties"]
    choices = properties["documents"]["items"]["anyOf"]
    assert [choice["type"] for choice in choices] == ["string", "object"]
    assert set(tool.input_schema["required"]) == {"query", "documents"}
    assert all(field["description"] for field in properties.values())


async def test_http_agrees_with_the_model_itself(models: Models) -> None:
    request: dict[str, Any] = {"model": "judge", "query": "red green", "documents": TEXTS}
    direct = await call(models, **request)
    app = models.application()
    async with (
        serve_http(app, "127.0.0.1", 0, token=None, prefix="model_http") as url,
        httpx.AsyncClient() as client,
    ):
        posted = await client.post(f"{url}/v1/rerank", json=request)
        assert posted.json() == direct
        listed = (await client.get(f"{url}/v1/models")).json()["data"]
        assert [row["id"] for row in listed] == ["tiny", "judge", "org/judge"]
        wrong = await client.post(f"{url}/v1/rerank", json=request | {"documents": [1]})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "documents")
