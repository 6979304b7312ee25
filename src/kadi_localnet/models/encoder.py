"""The two kinds of models: sentence encoders return vectors, cross-encoders scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kadi_localnet.models.config import ModelFiles
from kadi_localnet.models.errors import ModelsError, ModelSetupError
from kadi_localnet.models.graphs import Ids, TokenGraph, Tokens
from kadi_localnet.models.requests import Vectors

_SENTENCE_OUTPUT = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_LOGITS = "logits"


class Encoder(TokenGraph):
    """A sentence encoder, whose vectors have norm 1."""

    tolerance = 1e-4
    returns = "sentence vectors"

    def __init__(self, files: ModelFiles, session: Any, tokenizer: Any) -> None:
        super().__init__(files, session, tokenizer)
        self._pooling = files.pooling

    def outputs(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the vectors."""
        raw, mask = self._run(batch)
        return normalized(raw if self._rank == 2 else pool(raw, mask, self._pooling))

    def _choose_output(self, ranks: Mapping[str, int]) -> str:
        if ranks.get(_SENTENCE_OUTPUT) == 2:
            return _SENTENCE_OUTPUT
        for name in (*_TOKEN_OUTPUTS, *ranks):
            if ranks.get(name) == 3:
                return name
        raise ModelSetupError(f"no output with token vectors to pool; outputs: {sorted(ranks)}")


class CrossEncoder(TokenGraph):
    """A reranker, which scores a text against a query."""

    probe_query = "probe"
    tolerance = 1e-3
    returns = "finite scores"

    def infer(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the logistic function of the logits, in [0, 1], float64 of shape (n, 1).

        Raises:
            ModelsError: if a logit is not finite.
        """
        logits = self.outputs(batch).astype(np.float64)
        if not np.isfinite(logits).all():
            raise ModelsError(f"{self.name} returned a score that is not finite")
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-logits)))

    def outputs(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the logits, of shape (n, 1)."""
        logits, _ = self._run(batch)
        if logits.shape != (len(batch), 1):
            raise ModelSetupError(
                f"{self.name} is not a reranker: {logits.shape[-1]} logits per pair, not 1"
            )
        return logits

    def _choose_output(self, ranks: Mapping[str, int]) -> str:
        flat = [name for name, rank in ranks.items() if rank == 2]
        if _LOGITS in flat:
            return _LOGITS
        if len(flat) == 1:
            return flat[0]
        raise ModelSetupError(
            f"{self.name} is not a reranker: no logits among the outputs {sorted(ranks)}"
        )


def pool(hidden: Vectors, mask: Ids, pooling: str) -> Vectors:
    """Pool token vectors of shape (batch, sequence, d) into one vector per text.

    ``mean`` averages over the attended tokens, ``cls`` takes the first token.
    """
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
