from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_localnet.models.encoder import Encoder, EncoderFiles
from kadi_localnet.models.errors import DeadlinePassed, InvalidRequest, ModelsError, Overloaded
from kadi_localnet.models.graphs import GraphFiles, Ids
from kadi_localnet.models.lanes import Lanes
from kadi_localnet.models.local import LocalModel, Runtime, plan_batches
from kadi_localnet.models.requests import Vectors

LIMIT = 10


class Letters:
    """An encoder of texts into (their length, their first character) that can be held up."""

    def __init__(self) -> None:
        self.files = EncoderFiles(GraphFiles(Path("g"), Path("t"), 256), "none", False)
        self.dimensions = 2
        self.independent = True
        self.runs: list[int] = []
        self.held: threading.Event | None = None
        self.running = threading.Event()

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        return [np.array([ord(c) for c in text] or [0], np.int64) for text in texts]

    def infer(self, batch: Sequence[Ids]) -> Vectors:
        self.running.set()
        if self.held and not self.held.wait(LIMIT):
            raise TimeoutError
        self.runs.append(len(batch))
        return np.array([[len(ids), ids[0]] for ids in batch], np.float32)

    def embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        batch = self.tokenize(texts)
        return self.infer(batch), sum(map(len, batch))


def model(lanes: Lanes, encoder: object, **settings: int) -> LocalModel:
    options = {"batch_tokens": 8, "max_queued_texts": 100, **settings}
    return LocalModel("letters", encoder, Runtime(lanes, **options))  # type: ignore[arg-type]


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
    embedded = await model(lanes, Letters()).embed(texts, timeout=LIMIT)
    assert embedded.vectors[:, 0].tolist() == [3, 1, 1, 7, 2, 40, 1]
    assert embedded.vectors[:, 1].tolist() == [ord(text[0]) if text else 0 for text in texts]
    assert embedded.tokens == 3 + 1 + 1 + 7 + 2 + 40 + 1


async def test_a_model_that_may_not_be_batched_gets_one_text_a_run(lanes: Lanes) -> None:
    encoder = Letters()
    encoder.independent = False
    await model(lanes, encoder).embed(["a", "b", "c"], timeout=LIMIT)
    assert encoder.runs == [1, 1, 1]


async def test_the_deadline_ends_the_wait_and_drops_what_has_not_begun(lanes: Lanes) -> None:
    encoder = Letters()
    encoder.held = threading.Event()
    letters = model(lanes, encoder, batch_tokens=1)
    late = asyncio.create_task(letters.embed(["a", "b", "c"], timeout=0.5))
    assert await asyncio.to_thread(encoder.running.wait, LIMIT)
    with pytest.raises(DeadlinePassed):
        await late
    encoder.held.set()
    await letters.embed(["d", "e"], timeout=LIMIT)
    assert encoder.runs == [1, 1, 1]


async def test_more_than_may_be_queued_is_refused_but_a_query_is_not(lanes: Lanes) -> None:
    encoder = Letters()
    encoder.held = threading.Event()
    letters = model(lanes, encoder, max_queued_texts=3)
    first = asyncio.create_task(letters.embed(["a"] * 5, timeout=LIMIT))
    assert await asyncio.to_thread(encoder.running.wait, LIMIT)
    with pytest.raises(Overloaded, match="5 texts are queued") as caught:
        await letters.embed(["b", "c"], timeout=LIMIT)
    assert caught.value.retry_after
    query = asyncio.create_task(letters.embed(["q"], timeout=LIMIT))
    encoder.held.set()
    assert (await query).vectors.shape == (1, 2)
    assert (await first).vectors.shape == (5, 2)
    assert (await letters.embed(["b", "c"], timeout=LIMIT)).vectors.shape == (2, 2)


async def test_dimensions_it_does_not_have_are_refused(lanes: Lanes) -> None:
    letters = model(lanes, Letters())
    assert (await letters.embed(["a"], timeout=LIMIT, dimensions=2)).vectors.shape == (1, 2)
    with pytest.raises(InvalidRequest, match="dimensions: letters has 2"):
        await letters.embed(["a"], timeout=LIMIT, dimensions=1)


async def test_after_closing_the_error_says_so() -> None:
    lanes = Lanes(bulk_threads=1)
    lanes.start()
    letters = model(lanes, Letters())
    await lanes.close()
    with pytest.raises(ModelsError, match="closing"):
        await letters.embed(["a"], timeout=LIMIT)


@pytest.mark.model
@pytest.mark.parametrize("precision", ["fp32", "int8"])
async def test_a_text_has_one_vector_alone_or_among_others(
    lanes: Lanes, precision: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(f"minilm_{precision}")
    minilm = model(lanes, encoder, batch_tokens=512)
    texts = ["short", "a somewhat longer text " * 8, "", "wing in a slipstream", "数据库"]
    together = await minilm.embed(texts, timeout=60)
    for row, text in zip(together.vectors, texts, strict=True):
        alone = await minilm.embed([text], timeout=60)
        np.testing.assert_allclose(alone.vectors[0], row, atol=1e-5)
