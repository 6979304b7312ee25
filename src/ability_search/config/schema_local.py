"""Settings of the components of a local network; see :mod:`.schema`."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize, SecretStr, field_validator, model_validator

from ability_search.config.setting_fields import MIB, Group, HttpUrl, setting


class LocalBroker(Group):
    """Broker of the local stack."""

    prefix = "local_broker_"
    host: str = setting("127.0.0.1", about="Listen address.", min_length=1)
    port: int = setting(8080, about="Listen port; 0 picks a free port.", ge=0, le=65535)
    networks: tuple[str, ...] = setting(
        (),
        about="Networks that agents may join; if empty, any.",
    )


class Models(Group):
    """Model manager of the local stack."""

    prefix = "model_"
    precision: Literal["auto", "fp32", "int8"] = setting(
        "auto", about="Numeric precision of local models."
    )
    dirs: tuple[str, ...] = setting(
        (),
        about="Directories, each with an ONNX model (embedder or reranker) and its tokenizer.json,"
        " as `PATH` or `NAME=PATH`.",
        named_paths=True,
    )
    threads: int | None = setting(
        None,
        about="Threads for embedding documents.",
        unit="threads",
        ge=1,
        le=256,
        default_text="one per core",
    )
    upstream_url: HttpUrl | None = setting(
        None, about="URL of an OpenAI-compatible server with further models."
    )
    upstream_names: tuple[str, ...] = setting((), about="Models to forward to that server.")
    upstream_api_key: SecretStr | None = setting(
        None, about="API key of that server.", min_length=1
    )
    reranker_url: HttpUrl | None = setting(
        None, about="URL of a server with `/v1/rerank` and further rerankers."
    )
    reranker_names: tuple[str, ...] = setting((), about="Rerankers to forward to that server.")
    reranker_api_key: SecretStr | None = setting(
        None, about="API key of that server.", min_length=1
    )
    http_host: str = setting(
        "127.0.0.1", about="Listen address of the model manager's HTTP API.", min_length=1
    )
    http_port: int = setting(
        8090, about="Port of the model manager's HTTP API; 0 picks a free port.", ge=0, le=65535
    )
    http_token: SecretStr | None = setting(
        None,
        about="Bearer token that clients must send; required unless it listens on loopback only.",
        min_length=1,
    )


class Arcadedb(Group):
    """Database ability of the local stack."""

    prefix = "arcadedb_"
    backend: Literal["embedded", "http"] = setting(
        "embedded",
        about="Engine in the process (`embedded`), or a server or cluster over HTTP (`http`).",
    )
    heap: ByteSize | None = setting(
        None,
        about="Heap size of the embedded engine.",
        unit="bytes",
        ge=128 * MIB,
        le=1024 * 1024 * MIB,
        default_text="derived from the machine's memory",
    )
    urls: tuple[HttpUrl, ...] = setting(
        (), about="Addresses of the server, or of each server of a cluster."
    )
    user: str = setting("root", about="User name on the server.", min_length=1)
    password: SecretStr | None = setting(None, about="Password of that user.", min_length=1)
    languages: tuple[str, ...] = setting(
        ("sql", "sqlscript"),
        about="Languages of statements. Any but `sql` and `sqlscript` gives every agent on the"
        " network the files and addresses that the engine reaches.",
        min_length=1,
    )
    statement_timeout: float = setting(
        120.0,
        about="Longest time for a statement, whatever its caller asks for; `database_timeout` if"
        " that is longer.",
        unit="seconds",
        gt=0,
        le=3600,
    )

    @field_validator("languages")
    @classmethod
    def _ignore_case(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(language.lower() for language in value)

    @model_validator(mode="after")
    def _http_has_an_address(self) -> Arcadedb:
        if self.backend == "http" and not self.urls:
            raise ValueError("arcadedb_urls must be set because arcadedb_backend is http")
        return self
