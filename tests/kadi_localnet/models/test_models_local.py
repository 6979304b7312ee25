from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_localnet.models import ModelsConfig
from kadi_localnet.models.encoder import Encoder
from kadi_localnet.models.errors import DeadlinePassed, ModelsError, Overloaded
from kadi_localnet.models.lanes import Lanes
from kadi_localnet.models.local import LocalModel, Model, plan_batches
from kadi_localnet.models.requests import Vectors

LIMIT = 10


class Letters:
    """A model of texts into (their length, their first character) that can be held up.

    A query counts as the beginning of each text.
    """

    dimensions = 2
    max_tokens = 256
    tokenizer = None

    def __init__(self, *, independent: bool = True) -> None:
        self.independent = independent
        self.runs: list[int] = []
        self.held: threading.Event | None = None
        self.running = threading.Event()

    def tokenize(self, texts: Sequence[str], query: str | None = None) -> list[list[int]]:
        return [[ord(c) for c in (query or "") + text] or [0] for text in texts]

    def infer(self, batch: Sequence[list[int]]) -> Vectors:
        self.running.set()
        if self.held and not self.held.wait(LIMIT):
            raise TimeoutError
        self.runs.append(len(batch))
        return np.array([[len(ids), ids[0]] for ids in batch], np.float32)


def served(
    lanes: Lanes, model: Model, *, batch_tokens: int = 8, max_queued_texts: int = 100
) -> LocalModel:
    limits = ModelsConfig(batch_tokens=batch_tokens, max_queued_texts=max_queued_texts)
    return LocalModel("letters", model, lanes, limits)


@given(st.lists(st.integers(1, 300)), st.integers(1, 1000))
def test_batches_hold_every_text_once_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget=budget)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    ordered = [lengths[place] for batch in batches for place in batch]
    assert ordered == sorted(ordered)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= budget


async def test_vectors_come_in_the_order_of_the_texts(lanes: Lanes) -> None:
    texts = ["ccc", "a", "", "ddddddd", "bb", "x" * 40, "e"]
    vectors, tokens = await served(lanes, Letters()).run(texts, timeout=LIMIT)
    assert vectors[:, 0].tolist() == [3, 1, 1, 7, 2, 40, 1]
    assert vectors[:, 1].tolist() == [ord(text[0]) if text else 0 for text in texts]
    assert tokens == 3 + 1 + 1 + 7 + 2 + 40 + 1


async def test_each_text_is_read_behind_the_query(lanes: Lanes) -> None:
    texts = ["ccc", "a", "", "ddddddd", "bb", "x" * 40]
    scores, tokens = await served(lanes, Letters()).run(texts, query="q", timeout=LIMIT)
    assert scores[:, 0].tolist() == [len(text) + 1 for text in texts]
    assert tokens == sum(len(text) + 1 for text in texts)


@pytest.mark.parametrize("query", [None, "q"])
async def test_a_model_that_may_not_be_batched_gets_one_text_a_run(
    lanes: Lanes, query: str | None
) -> None:
    letters = Letters(independent=False)
    await served(lanes, letters).run(["a", "b", "c"], query=query, timeout=LIMIT)
    assert letters.runs == [1, 1, 1]


async def test_the_deadline_ends_the_wait_and_drops_what_has_not_begun(lanes: Lanes) -> None:
    letters = Letters()
    letters.held = threading.Event()
    model = served(lanes, letters, batch_tokens=1)
    late = asyncio.create_task(model.run(["a", "b", "c"], timeout=0.5))
    assert await asyncio.to_thread(letters.running.wait, LIMIT)
    with pytest.raises(DeadlinePassed):
        await late
    letters.held.set()
    await model.run(["d", "e"], timeout=LIMIT)
    assert letters.runs == [1, 1, 1]


async def test_more_than_may_be_queued_is_refused_but_a_query_is_not(lanes: Lanes) -> None:
    letters = Letters()
    letters.held = threading.Event()
    model = served(lanes, letters, max_queued_texts=3)
    first = asyncio.create_task(model.run(["a"] * 5, timeout=LIMIT))
    assert await asyncio.to_thread(letters.running.wait, LIMIT)
    with pytest.raises(Overloaded, match="5 texts are queued for letters") as caught:
        await model.run(["b"], query="q", timeout=LIMIT)
    assert caught.value.retry_after
    search = asyncio.create_task(model.run(["q"], timeout=LIMIT))
    letters.held.set()
    assert (await search)[0].shape == (1, 2)
    assert (await first)[0].shape == (5, 2)
    assert (await model.run(["b", "c"], timeout=LIMIT))[0].shape == (2, 2)


async def test_after_closing_the_error_says_so() -> None:
    lanes = Lanes(bulk_threads=1)
    lanes.start()
    model = served(lanes, Letters())
    await lanes.close()
    for texts in (["a"], ["a", "b"]):
        with pytest.raises(ModelsError, match="closing"):
            await model.run(texts, timeout=LIMIT)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("precision", ["fp32", "int8"])
async def test_a_text_has_one_vector_alone_or_among_others(
    lanes: Lanes, precision: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(f"minilm_{precision}")
    model = served(lanes, encoder, batch_tokens=512)
    texts = ["short", "a somewhat longer text " * 8, "", "wing in a slipstream", "数据库"]
    vectors, _ = await model.run(texts, timeout=60)
    for row, text in zip(vectors, texts, strict=True):
        [alone], _ = await model.run([text], timeout=60)
        np.testing.assert_allclose(alone, row, atol=1e-5)
