"""A sentence encoder on onnxruntime: converts texts to vectors, without an event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kadi_localnet.models.config import Pooling
from kadi_localnet.models.errors import ModelSetupError
from kadi_localnet.models.graphs import GraphFiles, Ids, TokenGraph
from kadi_localnet.models.requests import Vectors

log = logging.getLogger(__name__)

_SENTENCE_OUTPUT = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
# Tolerance between the vectors of a text run alone and in a batch; more is not just rounding.
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """The files of an encoder, and how its output becomes an embedding."""

    model: GraphFiles
    pooling: Pooling
    normalize: bool


class Encoder:
    """A loaded sentence encoder and its tokenizer; thread-safe."""

    def __init__(self, files: EncoderFiles, graph: TokenGraph) -> None:
        self.files = files
        self._graph = graph
        self._output, self._pooling = _choose_output(graph.ranks, files.pooling)
        self.dimensions = 0
        self.independent = True
        """True if a text's vector does not depend on the rest of its batch. Models with
        dynamically quantised activations use one scale for the whole batch: two vectors of one
        text then differ by a cosine of up to .02, so such a model must get one text per run."""

    @classmethod
    def load(cls, files: EncoderFiles) -> Encoder:
        """Load the model and check the output of a test run.

        Raises:
            ModelSetupError: if a file cannot be read, the graph requires inputs other than ids,
                mask and types, has no output that can be pooled, or returns unusable vectors.
        """
        started = time.perf_counter()
        encoder = cls(files, TokenGraph.load(files.model))
        encoder._probe()
        log.info(
            "loaded %s: %d dimensions, %d tokens, %.2f s",
            files.model.graph.name,
            encoder.dimensions,
            files.model.max_tokens,
            time.perf_counter() - started,
        )
        return encoder

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text with special tokens, truncated at the maximum."""
        return [np.asarray(self._graph.encode(text).ids, np.int64) for text in texts]

    def infer(self, batch: Sequence[Ids]) -> Vectors:
        """Embed tokenized texts in one run: float32 of shape (len(batch), dimensions)."""
        raw, mask = self._graph.run(self._output, batch)
        vectors = pool(raw, mask, self._pooling)
        return normalized(vectors) if self.files.normalize else vectors

    def embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        """Tokenize and embed texts in one run; return the vectors and the number of tokens."""
        batch = self.tokenize(texts)
        return self.infer(batch), sum(len(ids) for ids in batch)

    def _probe(self) -> None:
        short, long = self.tokenize(["probe", "a longer text beside the probe " * 4])
        try:
            alone = self.infer([short])
            padded = self.infer([short, long])
        except Exception as exc:  # onnxruntime raises its own types, all of them Exceptions
            raise ModelSetupError(f"{self.files.model.graph.name} does not run: {exc}") from exc
        if alone.ndim != 2 or not alone.shape[1] or not np.isfinite(alone).all():
            raise ModelSetupError(f"{self.files.model.graph.name} does not return sentence vectors")
        self.dimensions = int(alone.shape[1])
        spread = float(np.abs(normalized(alone) - normalized(padded[:1])).max())
        self.independent = spread < _ROUNDING


def pool(hidden: Vectors, mask: Ids, pooling: Pooling) -> Vectors:
    """Pool token vectors of shape (batch, sequence, d) into one vector per text.

    ``mean`` averages over the attended tokens, ``cls`` takes the first token, ``none`` returns the
    input, of shape (batch, d), unchanged.
    """
    if pooling == "none":
        return hidden
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[..., None].astype(np.float32)
    mean: Vectors = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def normalized(vectors: Vectors) -> Vectors:
    """Return the rows scaled to norm 1; a row of zeros is unchanged."""
    norms: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    norms[norms == 0] = 1
    return vectors / norms


def _choose_output(ranks: Mapping[str, int], wanted: Pooling) -> tuple[str, Pooling]:
    if _SENTENCE_OUTPUT in ranks and ranks[_SENTENCE_OUTPUT] == 2:
        return _SENTENCE_OUTPUT, "none"
    if wanted == "none":
        flat = [name for name, rank in ranks.items() if rank == 2]
        if len(flat) == 1:
            return flat[0], "none"
        raise ModelSetupError(
            f"pooling none requires one output of rank 2; outputs: {sorted(ranks)}"
        )
    for name in (*_TOKEN_OUTPUTS, *ranks):
        if ranks.get(name) == 3:
            return name, wanted
    raise ModelSetupError(f"no output with token vectors to pool; outputs: {sorted(ranks)}")
