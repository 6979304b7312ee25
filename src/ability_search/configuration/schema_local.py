"""The settings of what runs on one machine beside the worker; see :mod:`.schema`."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize, SecretStr, field_validator, model_validator

from ability_search.configuration.fields import MIB, Group, HttpUrl, setting


class LocalBroker(Group):
    """The broker of the local stack."""

    prefix = "local_broker_"
    host: str = setting("127.0.0.1", about="Address it listens on.", min_length=1)
    port: int = setting(8080, about="Port it listens on; 0 takes a free one.", ge=0, le=65535)
    networks: tuple[str, ...] = setting(
        (),
        about="The only networks there are on it; agents join no others. Empty: any that they"
        " ask for.",
    )


class Models(Group):
    """The model manager of the local stack."""

    prefix = "model_"
    precision: Literal["auto", "fp32", "int8"] = setting(
        "auto", about="Numbers that local models calculate with."
    )
    dirs: tuple[str, ...] = setting(
        (),
        about="Directories with an ONNX model, which embeds or reranks, and its tokenizer.json,"
        " each `PATH` or `NAME=PATH`.",
        named_paths=True,
    )
    threads: int | None = setting(
        None,
        about="Threads that embed documents.",
        unit="threads",
        ge=1,
        le=256,
        default_text="one per core",
    )
    upstream_url: HttpUrl | None = setting(
        None, about="OpenAI-compatible server that serves further models."
    )
    upstream_names: tuple[str, ...] = setting((), about="Models that are passed on to it.")
    upstream_api_key: SecretStr | None = setting(None, about="Its key.", min_length=1)
    reranker_url: HttpUrl | None = setting(
        None, about="Server with `/v1/rerank` that serves further rerankers."
    )
    reranker_names: tuple[str, ...] = setting((), about="Rerankers that are passed on to it.")
    reranker_api_key: SecretStr | None = setting(None, about="Its key.", min_length=1)
    http_host: str = setting(
        "127.0.0.1", about="Address of the model manager over HTTP.", min_length=1
    )
    http_port: int = setting(8090, about="Its port; 0 takes a free one.", ge=0, le=65535)
    http_token: SecretStr | None = setting(
        None,
        about="Bearer token its callers must show; required unless it listens on loopback only.",
        min_length=1,
    )


class Arcadedb(Group):
    """The database ability of the local stack."""

    prefix = "arcadedb_"
    backend: Literal["embedded", "http"] = setting(
        "embedded", about="Engine in the process, or a server or cluster over HTTP."
    )
    heap: ByteSize | None = setting(
        None,
        about="Memory of the embedded engine.",
        unit="bytes",
        ge=128 * MIB,
        le=1024 * 1024 * MIB,
        default_text="by the machine's memory",
    )
    urls: tuple[HttpUrl, ...] = setting(
        (), about="Addresses of the server, or of each server of a cluster."
    )
    user: str = setting("root", about="User on the server.", min_length=1)
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
            raise ValueError("arcadedb_urls must be set, as arcadedb_backend is http")
        return self
