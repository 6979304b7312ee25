"""Building the ONNX graph of a BERT sentence encoder from its weights.

The graph contains all steps from token ids to the embedding: the encoder of Devlin et al. 2019
(arXiv:1810.04805), the mean of its last hidden states over the attention mask and the L2
normalisation, as sentence-transformers models are defined (arXiv:1908.10084).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load_file

from kadi_localnet.models.runtime import QuantType, add_pre_process_metadata, quantize_dynamic

Weights = Mapping[str, npt.NDArray[Any]]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_embedding"

# Opset 20 has Gelu and goes with IR version 9; onnxruntime supports both since 1.17.
_OPSET = 20
_IR_VERSION = 9

# Added to the scores of padding: e^-10000 is 0 in float32, and sums with it stay finite.
_MASKED = -10_000.0


@dataclass(frozen=True, slots=True)
class BertShape:
    """The values of a ``config.json`` that determine the graph."""

    layers: int
    heads: int
    hidden: int
    positions: int
    epsilon: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> BertShape:
        """Read a Hugging Face ``config.json``.

        Raises:
            ValueError: if it does not describe a BERT encoder with GELU and absolute positions,
                or a value is missing.
        """
        expected = {
            "model_type": "bert",
            "hidden_act": "gelu",
            "position_embedding_type": "absolute",
        }
        for key, value in expected.items():
            if config.get(key, value) != value:
                raise ValueError(f"{key} is {config[key]!r}, only {value!r} is supported")
        try:
            return cls(
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                hidden=int(config["hidden_size"]),
                positions=int(config["max_position_embeddings"]),
                epsilon=float(config["layer_norm_eps"]),
            )
        except KeyError as exc:
            raise ValueError(f"config has no {exc.args[0]!r}") from exc


def build_graph(weights: Weights, shape: BertShape) -> ModelProto:
    """Build the encoder with pooling and normalisation.

    Inputs are int64 of shape (batch, sequence), both axes dynamic; the output
    ``sentence_embedding`` is float32 of shape (batch, hidden), every row of norm 1. A row needs
    at least one attended token; a sequence may have at most ``shape.positions`` tokens.

    Raises:
        ValueError: if a weight is missing.
    """
    graph = _Graph()
    try:
        hidden = _embeddings(graph, weights, shape)
        mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
        bias = _attention_bias(graph, mask)
        for layer in range(shape.layers):
            hidden = _layer(graph, weights, shape, f"encoder.layer.{layer}.", hidden, bias)
    except KeyError as exc:
        raise ValueError(f"weights have no tensor {exc.args[0]!r}") from exc
    _pooled(graph, hidden, mask)
    return graph.model(shape.hidden)


def write_graph(source: Path, target: Path, *, int8: bool) -> None:
    """Build the graph from ``model.safetensors`` and ``config.json`` in ``source`` as ``target``.

    With ``int8`` the weights are stored in seven bits with one scale per channel, and activations
    are quantised at run time.

    Raises:
        ValueError: if the weights or the configuration are not those of a BERT encoder.
        OSError: if a file cannot be read or written.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    try:
        weights = load_file(source / "model.safetensors")
    except SafetensorError as exc:
        raise ValueError(f"model.safetensors: {exc}") from exc
    graph = build_graph(weights, BertShape.from_config(config))
    if not int8:
        onnx.save(graph, str(target))
        return
    prepared = onnx.shape_inference.infer_shapes(graph)
    add_pre_process_metadata(prepared)
    # One scale per tensor ruins the ranking. Seven bits, because processors without VNNI saturate
    # with eight and would return a different embedding for the same text.
    quantize_dynamic(
        prepared, str(target), per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
    )


@dataclass(slots=True)
class _Graph:
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def split(self, value: str, parts: int) -> list[str]:
        names = [f"Split_{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(
            helper.make_node("Split", [value], names, name=names[0], axis=-1, num_outputs=parts)
        )
        return names

    def constant(self, name: str, value: npt.ArrayLike) -> str:
        array = np.ascontiguousarray(value)
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        return self.constant("int_" + "_".join(map(str, values)), np.array(values, np.int64))

    def linear(
        self, value: str, name: str, weight: npt.NDArray[Any], bias: npt.NDArray[Any]
    ) -> str:
        # Stored transposed, because onnxruntime packs and quantises only a plain MatMul.
        product = self.op("MatMul", value, self.constant(f"{name}.weight", weight.T))
        return self.op("Add", product, self.constant(f"{name}.bias", bias))

    def model(self, hidden: int) -> ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in INPUTS
        ]
        output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", hidden])
        graph = helper.make_graph(
            self.nodes, "sentence_encoder", inputs, [output], list(self.constants.values())
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="ability-search",
        )


def _embeddings(graph: _Graph, weights: Weights, shape: BertShape) -> str:
    def table(kind: str) -> str:
        return graph.constant(kind, weights[f"embeddings.{kind}_embeddings.weight"])

    words = graph.op("Gather", table("word"), "input_ids")
    types = graph.op("Gather", table("token_type"), "token_type_ids")
    length = graph.op("Shape", "input_ids", start=1, end=2)
    positions = graph.op("Slice", table("position"), graph.integers(0), length, graph.integers(0))
    summed = graph.op("Add", graph.op("Add", words, types), positions)
    return _layer_norm(graph, weights, shape, "embeddings.LayerNorm", summed)


def _attention_bias(graph: _Graph, mask: str) -> str:
    per_key = graph.op("Unsqueeze", mask, graph.integers(1, 2))
    padding = graph.op("Sub", graph.constant("one", np.float32(1)), per_key)
    return graph.op("Mul", padding, graph.constant("masked", np.float32(_MASKED)))


def _layer(
    graph: _Graph, weights: Weights, shape: BertShape, prefix: str, hidden: str, bias: str
) -> str:
    def dense(value: str, name: str) -> str:
        path = f"{prefix}{name}.dense"
        return graph.linear(value, path, weights[f"{path}.weight"], weights[f"{path}.bias"])

    attended = dense(_attention(graph, weights, shape, prefix, hidden, bias), "attention.output")
    hidden = _layer_norm(
        graph,
        weights,
        shape,
        f"{prefix}attention.output.LayerNorm",
        graph.op("Add", attended, hidden),
    )
    inner = graph.op("Gelu", dense(hidden, "intermediate"))
    return _layer_norm(
        graph,
        weights,
        shape,
        f"{prefix}output.LayerNorm",
        graph.op("Add", dense(inner, "output"), hidden),
    )


def _attention(
    graph: _Graph, weights: Weights, shape: BertShape, prefix: str, hidden: str, bias: str
) -> str:
    width = shape.hidden // shape.heads
    # The factor 1/sqrt(width) of the scores is folded into the query, and the three projections
    # are one product. Both are exact and save a pass over the largest tensor.
    scale = {"query": np.float32(width**-0.5), "key": np.float32(1), "value": np.float32(1)}
    path = f"{prefix}attention.self"
    joint = graph.linear(
        hidden,
        f"{path}.qkv",
        np.concatenate([weights[f"{path}.{name}.weight"] * scale[name] for name in scale]),
        np.concatenate([weights[f"{path}.{name}.bias"] * scale[name] for name in scale]),
    )

    def heads(value: str, order: Sequence[int]) -> str:
        split = graph.op("Reshape", value, graph.integers(0, 0, shape.heads, width))
        return graph.op("Transpose", split, perm=order)

    query, key, value = graph.split(joint, 3)
    scores = graph.op("MatMul", heads(query, (0, 2, 1, 3)), heads(key, (0, 2, 3, 1)))
    shares = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    mixed = graph.op("MatMul", shares, heads(value, (0, 2, 1, 3)))
    together = graph.op("Transpose", mixed, perm=(0, 2, 1, 3))
    return graph.op("Reshape", together, graph.integers(0, 0, shape.hidden))


def _layer_norm(graph: _Graph, weights: Weights, shape: BertShape, path: str, value: str) -> str:
    scale = graph.constant(f"{path}.weight", weights[f"{path}.weight"])
    bias = graph.constant(f"{path}.bias", weights[f"{path}.bias"])
    return graph.op("LayerNormalization", value, scale, bias, axis=-1, epsilon=shape.epsilon)


def _pooled(graph: _Graph, hidden: str, mask: str) -> None:
    per_token = graph.op("Unsqueeze", mask, graph.integers(-1))
    total = graph.op("ReduceSum", graph.op("Mul", hidden, per_token), graph.integers(1), keepdims=0)
    count = graph.op("ReduceSum", mask, graph.integers(1), keepdims=1)
    mean = graph.op("Div", total, count)
    graph.op("LpNormalization", mean, output=OUTPUT, axis=-1, p=2)
