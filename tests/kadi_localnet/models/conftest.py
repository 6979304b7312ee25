"""Fixtures of the model manager: built models and servers on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
import uvicorn
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from starlette.applications import Starlette
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from kadi_localnet.models import minilm
from kadi_localnet.models.bert_graph import BertShape, build_graph
from kadi_localnet.models.config import ModelFiles
from kadi_localnet.models.encoder import Encoder
from kadi_localnet.models.lanes import Lanes

Serve = Callable[[Starlette], AbstractAsyncContextManager[str]]
WIDTH = 4
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "grey"]


@pytest.fixture(scope="session")
def graph_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="session")
def minilm_fp32(graph_cache: Path) -> Encoder:
    source = minilm.weights_directory()
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    weights = load_file(source / "model.safetensors")
    file = graph_cache / "exact" / "minilm.onnx"
    file.parent.mkdir()
    onnx.save(build_graph(weights, BertShape.from_config(config)), str(file))
    return Encoder.load(ModelFiles(file, source / "tokenizer.json", minilm.MAX_TOKENS))


@pytest.fixture(scope="session")
def minilm_int8(graph_cache: Path) -> Encoder:
    return Encoder.load(minilm.ensure_files(minilm.weights_directory(), graph_cache))


@pytest.fixture
def serve() -> Serve:
    """Serve an ASGI application on a free port of a real socket."""

    @asynccontextmanager
    async def run(app: Starlette) -> AsyncIterator[str]:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            async with asyncio.timeout(10):
                await task

    return run


@pytest.fixture
async def lanes() -> AsyncIterator[Lanes]:
    lanes = Lanes(bulk_threads=1)
    lanes.start()
    yield lanes
    async with asyncio.timeout(10):
        await lanes.close()


def token_table() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(len(WORDS), WIDTH)).astype(np.float32)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """A model directory whose token vectors are rows of :func:`token_table`."""

    def write(
        name: str = "tiny",
        *,
        output: str = "last_hidden_state",
        inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
        kind: int = TensorProto.INT64,
        file: str = "model.onnx",
        **settings: object,
    ) -> Path:
        root = tmp_path / name
        (root / file).parent.mkdir(parents=True)
        (root / "1_Pooling").mkdir()
        _write_tokenizer(root / "tokenizer.json")
        nodes = [helper.make_node("Gather", ["table", "input_ids"], ["tokens"])]
        shape: list[str | int] = ["batch", "sequence", WIDTH]
        if output == "sentence_embedding":
            nodes.append(helper.make_node("ReduceMax", ["tokens", "axis"], [output], keepdims=0))
            shape = ["batch", WIDTH]
        else:
            nodes.append(helper.make_node("Identity", ["tokens"], [output]))
        graph = helper.make_graph(
            nodes,
            "tiny",
            [helper.make_tensor_value_info(each, kind, ["batch", "sequence"]) for each in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            [
                numpy_helper.from_array(token_table(), "table"),
                numpy_helper.from_array(np.array([1], np.int64), "axis"),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, str(root / file))
        for path, content in settings.items():
            target = root / (
                "1_Pooling/config.json" if path == "pooling_config" else f"{path}.json"
            )
            target.write_text(json.dumps(content), encoding="utf-8")
        return root

    return write


@pytest.fixture
def tiny_reranker(tmp_path: Path) -> Callable[..., Path]:
    """A directory with a cross-encoder whose logit is ``scale`` times the words in common, less 1.

    The query's words are those of type 0, the text's those of type 1. ``beside`` is taken away
    for each token in the batch; ``labels`` repeats the logit.
    """

    def write(
        name: str = "judge",
        *,
        scale: float = 1.0,
        beside: float = 0.0,
        labels: int = 1,
        output: str = "logits",
        **config: object,
    ) -> Path:
        root = tmp_path / name
        root.mkdir()
        _write_tokenizer(root / "tokenizer.json")
        words = np.eye(len(WORDS), dtype=np.float32)
        words[: WORDS.index("red")] = 0
        constants = {
            "words": words,
            "tokens": np.array([1], np.int64),
            "last": np.array([-1], np.int64),
            "one": np.float32(1),
            "scale": np.float32(scale),
            "beside": np.float32(beside),
            "labels": np.ones((1, labels), np.float32),
        }
        nodes = [
            helper.make_node("Gather", ["words", "input_ids"], ["each"]),
            *_counted("text", "token_type_ids"),
            helper.make_node("Sub", ["attention_mask", "token_type_ids"], ["asked"]),
            *_counted("query", "asked"),
            helper.make_node("Mul", ["query", "text"], ["common"]),
            helper.make_node("ReduceSum", ["common", "last"], ["shared"], keepdims=1),
            helper.make_node("Mul", ["shared", "scale"], ["scaled"]),
            helper.make_node("Sub", ["scaled", "one"], ["alone"]),
            helper.make_node("ReduceSum", ["attention_mask"], ["all"], keepdims=0),
            helper.make_node("Cast", ["all"], ["size"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["size", "beside"], ["off"]),
            helper.make_node("Sub", ["alone", "off"], ["logit"]),
            helper.make_node("Mul", ["logit", "labels"], [output]),
        ]
        graph = helper.make_graph(
            nodes,
            "judge",
            [
                helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "sequence"])
                for each in ("input_ids", "attention_mask", "token_type_ids")
            ],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", labels])],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, str(root / "model.onnx"))
        config = {"architectures": ["TinyForSequenceClassification"], **config}
        (root / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return root

    return write


def _counted(name: str, where: str) -> list[onnx.NodeProto]:
    """How often each word occurs where ``where`` is 1: shape (batch, words)."""
    return [
        helper.make_node("Cast", [where], [f"{name}-places"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", [f"{name}-places", "last"], [f"{name}-column"]),
        helper.make_node("Mul", ["each", f"{name}-column"], [f"{name}-words"]),
        helper.make_node("ReduceSum", [f"{name}-words", "tokens"], [name], keepdims=0),
    ]


def _write_tokenizer(path: Path) -> None:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(path))
