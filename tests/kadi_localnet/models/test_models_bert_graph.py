from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from safetensors.numpy import load_file

from kadi_localnet.models import minilm
from kadi_localnet.models.bert_graph import BertShape, build_graph

CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-12,
}


def small_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    width, inner = 8, 20

    def random(*shape: int) -> np.ndarray:
        return rng.normal(scale=0.6, size=shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": random(30, width),
        "embeddings.position_embeddings.weight": random(12, width),
        "embeddings.token_type_embeddings.weight": random(2, width),
        "embeddings.LayerNorm.weight": random(width),
        "embeddings.LayerNorm.bias": random(width),
    }
    for layer in range(2):
        prefix = f"encoder.layer.{layer}."
        sizes = {
            "attention.self.query": (width, width),
            "attention.self.key": (width, width),
            "attention.self.value": (width, width),
            "attention.output.dense": (width, width),
            "intermediate.dense": (inner, width),
            "output.dense": (width, inner),
        }
        for name, (rows, columns) in sizes.items():
            weights[f"{prefix}{name}.weight"] = random(rows, columns)
            weights[f"{prefix}{name}.bias"] = random(rows)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            weights[f"{prefix}{name}.weight"] = random(width)
            weights[f"{prefix}{name}.bias"] = random(width)
    return weights


def reference(weights: Any, config: Any, ids: list[int], types: list[int]) -> np.ndarray:
    """BERT for one unpadded sequence in float64, head by head, straight from the paper."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    erf = np.vectorize(__import__("math").erf)

    def norm(x: np.ndarray, path: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + config["layer_norm_eps"])
        normed: np.ndarray = scaled * w[f"{path}.weight"] + w[f"{path}.bias"]
        return normed

    def linear(x: np.ndarray, path: str) -> np.ndarray:
        return x @ w[f"{path}.weight"].T + w[f"{path}.bias"]

    x = (
        w["embeddings.word_embeddings.weight"][ids]
        + w["embeddings.position_embeddings.weight"][: len(ids)]
        + w["embeddings.token_type_embeddings.weight"][types]
    )
    x = norm(x, "embeddings.LayerNorm")
    width = config["hidden_size"] // config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{prefix}attention.self.{n}") for n in ("query", "key", "value"))
        heads = []
        for head in range(config["num_attention_heads"]):
            part = slice(head * width, (head + 1) * width)
            scores = q[:, part] @ k[:, part].T / np.sqrt(width)
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(shares / shares.sum(axis=-1, keepdims=True) @ v[:, part])
        attended = linear(np.concatenate(heads, axis=-1), f"{prefix}attention.output.dense")
        x = norm(x + attended, f"{prefix}attention.output.LayerNorm")
        inner = linear(x, f"{prefix}intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
        x = norm(x + linear(inner, f"{prefix}output.dense"), f"{prefix}output.LayerNorm")
    mean: np.ndarray = x.mean(axis=0)
    mean /= np.linalg.norm(mean)
    return mean


def run(session: Any, sequences: list[list[int]], types: list[list[int]]) -> np.ndarray:
    length = max(map(len, sequences))
    ids = np.full((len(sequences), length), 7, np.int64)
    mask = np.zeros_like(ids)
    kinds = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
        kinds[row, : len(sequence)] = types[row]
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}
    embedded: np.ndarray = session.run(["sentence_embedding"], feed)[0]
    return embedded


def session_of(model: onnx.ModelProto) -> Any:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_small_encoder_computes_what_the_paper_says() -> None:
    weights = small_weights()
    model = build_graph(weights, BertShape.from_config(CONFIG))
    onnx.checker.check_model(model, full_check=True)
    sequences = [[2, 9, 4, 3], [2, 3], [2, 5, 5, 17, 29, 0, 1, 12, 8, 3, 6, 3]]
    types = [[0, 0, 1, 1], [0, 0], [0] * 6 + [1] * 6]

    got = run(session_of(model), sequences, types)

    expected = [
        reference(weights, CONFIG, ids, kinds) for ids, kinds in zip(sequences, types, strict=True)
    ]
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.model
@pytest.mark.process
def test_the_real_weights_compute_what_the_paper_says() -> None:
    source = minilm.weights_directory()
    weights = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    session = session_of(build_graph(weights, BertShape.from_config(config)))
    rng = np.random.default_rng(3)
    sequences = [[101, *rng.integers(999, 30000, size).tolist(), 102] for size in (0, 5, 40, 254)]
    types = [[0] * len(ids) for ids in sequences]

    got = run(session, sequences, types)

    expected = [
        reference(weights, config, ids, kinds) for ids, kinds in zip(sequences, types, strict=True)
    ]
    np.testing.assert_allclose(got, expected, atol=1e-4)
