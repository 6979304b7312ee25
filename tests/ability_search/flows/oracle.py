"""What a collection of single-chunk documents must answer, calculated from the formulas."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.ability_search.flows.conftest import Network, word_vector

from ability_search.analysis import analyzer_for

K1, B, K3, TITLE_WEIGHT = 1.2, 0.75, 8.0, 1.5
Scores = dict[str, float]
"""By chunkId."""

_SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "so", "ti", "vu", "za")


def corpus(size: int, *, words: int = 60, seed: int = 7) -> list[dict[str, Any]]:
    """Documents over a small vocabulary, some of them alike to the letter.

    They are about as long as a new collection expects, so that maintenance has nothing to renew
    and scores do not change behind a test's back.
    """
    chance = random.Random(seed)
    vocabulary = sorted({"".join(chance.choices(_SYLLABLES, k=3)) + "k" for _ in range(4 * words)})[
        :words
    ]
    documents: list[dict[str, Any]] = []
    for n in range(size):
        if n % 10 == 9:
            alike = documents[-3]
            title, content = alike["title"], alike["content"]
        else:
            title = " ".join(chance.choices(vocabulary, k=2))
            # Frequencies fall with the rank, as those of words do.
            picked = chance.choices(
                vocabulary,
                weights=[1 / (rank + 3) for rank in range(words)],
                k=chance.randint(10, 60),
            )
            content = " ".join(picked)
        documents.append(
            {
                "source": f"s{n:04}",
                "title": title,
                "content": content,
                "metadata": {"half": n % 2, "rare": n % 100 == 42, "n": n},
            }
        )
    return documents


@dataclass
class Oracle:
    """Exact scores; ``average_length`` is the one the stored weights were made with."""

    collection: str
    documents: Sequence[dict[str, Any]]
    average_length: float

    @classmethod
    async def of(
        cls, network: Network, collection: str, documents: Sequence[dict[str, Any]]
    ) -> Oracle:
        """The oracle of what is stored in ``collection``."""
        answer = await network.client.invoke(
            "arcade-query",
            {
                "database": network.settings.database.name,
                "query": "SELECT averageLength FROM Collection WHERE name = :name",
                "params": {"name": collection},
            },
        )
        return cls(collection, documents, answer["result"][0]["averageLength"])

    def id(self, document: dict[str, Any]) -> str:
        return f"{self.collection}:{document['source']}:0"

    def cosines(self, text: str) -> Scores:
        query = word_vector(text)
        scores = {}
        for document in self.documents:
            title, content = document["title"], document["content"]
            # A title that the text begins with is not said twice.
            vector = word_vector(content if content.startswith(title) else f"{title} {content}")
            norm = np.linalg.norm(query) * np.linalg.norm(vector)
            scores[self.id(document)] = float(query @ vector / norm)
        return scores

    def bm25(self, text: str) -> Scores:
        """Of the chunks that have one of the query's terms."""
        weights = self._query_weights(text)
        scores = {}
        for document in self.documents:
            title = Counter(analyzer_for().terms(document["title"]))
            content = Counter(analyzer_for().terms(document["content"]))
            length = sum(content.values())
            saturation = K1 * (1 - B + B * length / self.average_length)
            score = 0.0
            for term, weight in weights.items():
                f = content[term]
                score += weight * f * (K1 + 1) / (f + saturation)
                f = title[term]
                score += TITLE_WEIGHT * weight * f * (K1 + 1) / (f + K1)
            if score:
                scores[self.id(document)] = score
        return scores

    def keyword(self, text: str) -> Scores:
        """Normalized to [0, 1]."""
        information = sum(self._query_weights(text).values())
        return {id_: 1 - math.exp(-raw / information) for id_, raw in self.bm25(text).items()}

    def semantic(self, text: str) -> Scores:
        """Normalized to [0, 1]."""
        return {id_: min(1.0, max(0.0, cosine)) for id_, cosine in self.cosines(text).items()}

    def hybrid(self, text: str, *, semantic: float = 0.7, keyword: float = 0.3) -> Scores:
        """Convex; every chunk has a cosine, and one without the words has a BM25 of 0."""
        by_words = self.keyword(text)
        total = semantic + keyword
        return {
            id_: (semantic * score + keyword * by_words.get(id_, 0.0)) / total
            for id_, score in self.semantic(text).items()
        }

    def reciprocal(
        self, text: str, *, k: float = 60, semantic: float = 0.7, keyword: float = 0.3
    ) -> Scores:
        """Weighted reciprocal ranks over their greatest possible sum."""
        scores: Scores = {}
        best = (semantic + keyword) / (k + 1)
        for weight, arm in ((semantic, self.cosines(text)), (keyword, self.bm25(text))):
            for rank, id_ in enumerate(sorted(arm, key=lambda id_: (-arm[id_], id_)), start=1):
                scores[id_] = scores.get(id_, 0.0) + weight / (k + rank) / best
        return scores

    def where(self, fits: Callable[[dict[str, Any]], bool]) -> set[str]:
        """The chunkIds of the documents that fit."""
        return {self.id(document) for document in self.documents if fits(document)}

    def _query_weights(self, text: str) -> dict[str, float]:
        terms = Counter(analyzer_for().query_terms(text))
        count = len(self.documents)
        titles = [set(analyzer_for().terms(document["title"])) for document in self.documents]
        contents = [set(analyzer_for().terms(document["content"])) for document in self.documents]
        weights = {}
        for term, repeated in terms.items():
            frequency = max(
                sum(term in field for field in titles), sum(term in field for field in contents)
            )
            idf = math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
            weights[term] = idf * (K3 + 1) * repeated / (K3 + repeated)
        return weights


def assert_ranked(results: Sequence[dict[str, Any]], scores: Scores, *, count: int) -> None:
    """The results are the best ``count`` by ``scores``, in order, with these scores.

    The engine calculates in 32 bits: what is closer than that may change places.
    """
    found = [hit["chunkId"] for hit in results]
    assert len(found) == len(set(found)) == min(count, len(scores))
    assert found == [
        hit["chunkId"] for hit in sorted(results, key=lambda hit: (-hit["score"], hit["chunkId"]))
    ]
    for hit, best in zip(results, sorted(scores.values(), reverse=True), strict=False):
        assert math.isclose(hit["score"], scores[hit["chunkId"]], abs_tol=1e-4)
        assert math.isclose(scores[hit["chunkId"]], best, abs_tol=1e-5)
