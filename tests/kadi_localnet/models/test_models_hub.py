from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kadi_localnet.models import (
    ModelDirectory,
    ModelsConfig,
    ModelSetupError,
    installed_models,
    pull_model,
)
from kadi_localnet.models.service import open_models

NAME = "org/tiny-model"
COMMIT = "a" * 40
LATER = "b" * 40


class Hub:
    """A hub as huggingface_hub calls it, with one repository."""

    def __init__(self, root: Path) -> None:
        self.commit = COMMIT
        self.files = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        self.cut: dict[str, int] = {}
        self.damaged: set[str] = set()
        self.down = False
        self.gets: list[str] = []
        self.authorizations: set[str | None] = set()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/models/{repo:path}/revision/{revision}", self.info),
                Route("/{owner}/{repo}/resolve/{revision}/{path:path}", self.resolve),
            ]
        )

    async def info(self, request: Request) -> Response:
        self.authorizations.add(request.headers.get("authorization"))
        if self.down:
            return Response(status_code=500)
        if request.path_params["repo"] != NAME:
            return self.error("RepoNotFound")
        if request.path_params["revision"] not in ("main", self.commit):
            return self.error("RevisionNotFound")
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "blobId": self.digest(content)[:40],
                **({"lfs": self.lfs(content)} if name.endswith(".onnx") else {}),
            }
            for name, content in self.files.items()
        ]
        return JSONResponse(
            {"id": NAME, "modelId": NAME, "sha": self.commit, "siblings": siblings, "tags": []}
        )

    async def resolve(self, request: Request) -> Response:
        name = request.path_params["path"]
        content = self.files[name]
        headers = {"ETag": f'"{self.digest(content)}"', "X-Repo-Commit": self.commit}
        if request.method == "HEAD":
            return Response(headers=headers | {"Content-Length": str(len(content))})
        self.gets.append(name)
        if name in self.damaged:
            content = bytes(len(content))
        return Response(content[: self.cut.pop(name, None)], headers=headers)

    @staticmethod
    def error(code: str) -> Response:
        return Response(status_code=404, headers={"X-Error-Code": code})

    @staticmethod
    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def lfs(self, content: bytes) -> dict[str, Any]:
        return {"sha256": self.digest(content), "size": len(content), "pointerSize": 130}


Pull = Callable[..., Any]


@pytest.fixture
async def hub(
    tiny: Callable[..., Path], serve: Any, tmp_path: Path
) -> AsyncIterator[tuple[Hub, Pull]]:
    root = tiny("repository", file="onnx/model.onnx", sentence_bert_config={"max_seq_length": 8})
    (root / "README.md").write_text("not wanted", encoding="utf-8")
    (root / "onnx" / "model_quantized.onnx").write_bytes((root / "onnx/model.onnx").read_bytes())
    hub = Hub(root)
    async with serve(hub.app()) as url:

        async def pull(name: str = NAME, **options: Any) -> ModelDirectory:
            call = partial(pull_model, name, tmp_path / "models", endpoint=url, **options)
            return await asyncio.to_thread(call)

        yield hub, pull


def names(directory: ModelDirectory) -> set[str]:
    return {
        path.relative_to(directory.path).as_posix()
        for path in directory.path.rglob("*")
        if path.is_file()
    }


async def test_a_pulled_model_is_complete_and_can_be_served(
    hub: tuple[Hub, Pull], tmp_path: Path
) -> None:
    server, pull = hub
    told: list[tuple[str, int, int]] = []
    pulled = await pull(progress=lambda *step: told.append(step))
    assert names(pulled) == {
        "onnx/model.onnx",
        "tokenizer.json",
        "sentence_bert_config.json",
        "pulled.json",
    }
    assert installed_models(tmp_path / "models") == (pulled,)
    total = sum(len(server.files[name]) for name in names(pulled) - {"pulled.json"})
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1:] == (total, total)
    assert server.authorizations == {None}
    config = ModelsConfig(minilm=False, directories=installed_models(tmp_path / "models"))
    async with open_models(config) as models:
        assert models.describe(NAME).max_tokens == 8


async def test_pulling_again_fetches_nothing_until_the_revision_changes(
    hub: tuple[Hub, Pull],
) -> None:
    server, pull = hub
    await pull()
    fetched = len(server.gets)
    await pull()
    assert len(server.gets) == fetched
    server.commit = LATER
    server.files["sentence_bert_config.json"] = b'{"max_seq_length": 9}'
    again = await pull()
    assert (again.path / "sentence_bert_config.json").read_bytes() == b'{"max_seq_length": 9}'
    assert [path.name for path in again.path.parent.iterdir()] == [again.path.name]


async def test_an_interrupted_pull_keeps_the_files_that_had_arrived(
    hub: tuple[Hub, Pull], tmp_path: Path
) -> None:
    server, pull = hub
    server.cut["tokenizer.json"] = 100
    with pytest.raises(ModelSetupError, match=f"cannot pull {NAME}: OSError"):
        await pull()
    assert installed_models(tmp_path / "models") == ()
    pulled = await pull()
    assert server.gets.count("onnx/model.onnx") == 1
    assert (pulled.path / "tokenizer.json").read_bytes() == server.files["tokenizer.json"]


async def test_a_damaged_file_is_not_kept(hub: tuple[Hub, Pull], tmp_path: Path) -> None:
    server, pull = hub
    server.damaged.add("onnx/model.onnx")
    with pytest.raises(ModelSetupError, match=r"model\.onnx arrived with a wrong checksum"):
        await pull()
    assert installed_models(tmp_path / "models") == ()
    server.damaged.clear()
    pulled = await pull()
    assert (pulled.path / "onnx/model.onnx").read_bytes() == server.files["onnx/model.onnx"]


async def test_a_variant_can_be_chosen(hub: tuple[Hub, Pull]) -> None:
    _, pull = hub
    pulled = await pull(graph="onnx/model_quantized.onnx")
    assert "onnx/model_quantized.onnx" in names(pulled)
    assert "onnx/model.onnx" not in names(pulled)
    with pytest.raises(ModelSetupError, match=r"onnx/model\.onnx, onnx/model_quantized\.onnx"):
        await pull(graph="onnx/model_O4.onnx")


async def test_what_does_not_exist_is_said_plainly(hub: tuple[Hub, Pull]) -> None:
    server, pull = hub
    with pytest.raises(ModelSetupError, match="repository org/other does not exist"):
        await pull("org/other")
    with pytest.raises(ModelSetupError, match="no such revision"):
        await pull(revision="v9")
    for wrong in ("../../etc", "a/b/c", "", "org/..", "-x/y"):
        with pytest.raises(ModelSetupError, match="expected owner/model"):
            await pull(wrong)
    del server.files["tokenizer.json"]
    with pytest.raises(ModelSetupError, match=r"has no tokenizer\.json"):
        await pull()


async def test_a_hub_that_fails_leaves_what_is_there(hub: tuple[Hub, Pull], tmp_path: Path) -> None:
    server, pull = hub
    pulled = await pull()
    server.down = True
    with pytest.raises(ModelSetupError, match="cannot pull"):
        await pull()
    assert installed_models(tmp_path / "models") == (pulled,)


async def test_a_token_is_sent_when_given(hub: tuple[Hub, Pull]) -> None:
    server, pull = hub
    await pull(token="hf_given")
    assert server.authorizations == {"Bearer hf_given"}


def test_a_missing_extra_names_its_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelSetupError, match=r"pip install 'ability-search\[hub\]'"):
        pull_model(NAME, tmp_path)


def test_statistics_of_the_library_are_disabled() -> None:
    program = (
        "import kadi_localnet.models.hub; from huggingface_hub import constants;"
        " assert constants.HF_HUB_DISABLE_TELEMETRY"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environ, timeout=60)
