"""Every tunable of the product: its type, default, unit, bounds and description.

One group a concern. The name of a setting is its group's prefix and its attribute joined by ``_``
(an attribute may name another key): ``chunk_size`` is ``settings.chunking.size`` in code,
``search.chunk_size`` in config.yml and ``SEARCH_CHUNK_SIZE`` in the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ByteSize, SecretStr, field_validator, model_validator

from ability_search.configuration.fields import (
    KIB,
    MIB,
    Group,
    HttpUrl,
    Url,
    WebSocketUrl,
    setting,
)
from ability_search.configuration.schema_aspects import Aspects
from ability_search.configuration.schema_deployment import Deployment
from ability_search.configuration.schema_edges import Gateway, Metrics, Tracing
from ability_search.configuration.schema_jobs import JobSettings
from ability_search.configuration.schema_local import Arcadedb, LocalBroker, Models


class Chunking(Group):
    """How texts are cut."""

    prefix = "chunk_"
    size: int = setting(500, about="Most tokens in a chunk.", unit="tokens", ge=16, le=8192)
    overlap: int = setting(
        50, about="Tokens that neighbouring sliding windows share.", unit="tokens", ge=0, le=4096
    )
    strategy: Literal["auto", "markdown-headers", "code-blocks", "paragraph", "sliding-window"] = (
        setting("auto", about="How a text is cut where the call does not say.")
    )
    tokenizer: Path | None = setting(
        None,
        key="tokenizer",
        about="tokenizer.json of the embedding model, to count tokens as it does.",
        default_text="an estimate",
    )

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Chunking:
        if self.overlap >= self.size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        return self


class Embedding(Group):
    """Where vectors come from."""

    prefix = "embedding_"
    model: str = setting(
        "nomic-embed-text",
        about="Model of new collections.",
        min_length=1,
        max_length=256,
    )
    transport: Literal["api", "broker"] = setting(
        "broker", about="Ask a model manager on the network, or an OpenAI-compatible API."
    )
    api_url: HttpUrl | None = setting(None, about="Base address of that API.")
    api_key: SecretStr | None = setting(
        None, key="api_key", about="Key of the API, or of the model manager.", min_length=1
    )
    batch_texts: int = setting(64, about="Most texts in a request.", unit="texts", ge=1, le=2048)
    batch_bytes: ByteSize = setting(
        ByteSize(MIB), about="Most text in a request.", unit="bytes", ge=KIB, le=16 * MIB
    )
    concurrency: int = setting(
        2, about="Requests of an indexing call in flight.", unit="requests", ge=1, le=64
    )
    timeout: float = setting(
        60.0, about="Longest wait for one request.", unit="seconds", gt=0, le=3600
    )
    query_timeout: float = setting(
        10.0,
        about="Longest wait for a query's vector, further tries included.",
        unit="seconds",
        gt=0,
        le=3600,
    )
    reuse: bool = setting(
        True, about="Use the vectors again that the database holds of the same model and text."
    )
    max_tokens: int | None = setting(
        None,
        about="Longest text the model reads; chunks are cut no longer.",
        unit="tokens",
        ge=16,
        le=1_000_000,
        default_text="not known",
    )
    attempts: int = setting(
        5, about="Tries of a request that failed for a passing reason.", unit="tries", ge=1, le=20
    )
    breaker_failures: int = setting(
        5,
        about="Failures in a row after which requests fail at once.",
        unit="failures",
        ge=1,
        le=1000,
    )
    breaker_reset: float = setting(
        5.0, about="Pause until such a request is tried again.", unit="seconds", gt=0, le=3600
    )


class Reranker(Group):
    """The model that may read the first hits once more; the query asks for it."""

    prefix = "reranker_"
    transport: Literal["api", "broker"] = setting(
        "broker", about="Ask a model manager on the network, or an API like Cohere's or Jina's."
    )
    api_url: HttpUrl | None = setting(None, about="Base address of that API.")
    api_key: SecretStr | None = setting(
        None, about="Key of the API, or of the model manager.", min_length=1
    )
    model: str | None = setting(
        None,
        about="Model where the query names none.",
        min_length=1,
        max_length=256,
        default_text="the server's own",
    )
    timeout: float = setting(
        1.5,
        about="Longest wait for it; then the hits stay as they were.",
        unit="seconds",
        gt=0,
        le=3600,
    )


class Expansion(Group):
    """The language model that may put a query into further words; the query asks for it."""

    prefix = "expansion_"
    model: str | None = setting(
        None,
        about="Model where the query names none.",
        min_length=1,
        max_length=256,
        default_text="the server's own",
    )
    api_key: SecretStr | None = setting(None, about="Key of the model manager.", min_length=1)
    timeout: float = setting(
        2.0,
        about="Longest wait for it; then the query goes on as it is.",
        unit="seconds",
        gt=0,
        le=3600,
    )


class Database(Group):
    """How the database ability is used."""

    prefix = "database_"
    name: str = setting(
        "kadi_memory",
        key="database",
        about="Database that holds the collections.",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
    )
    timeout: float = setting(
        30.0, about="Longest wait for one statement.", unit="seconds", gt=0, le=3600
    )
    grace_period: float = setting(
        10.0,
        about="Time that a replaced generation stays for queries under way.",
        unit="seconds",
        ge=0,
        le=3600,
    )
    write_group_bytes: ByteSize = setting(
        ByteSize(4 * MIB),
        about="Most data in one transaction, unless one source alone is larger.",
        unit="bytes",
        ge=64 * KIB,
        le=16 * MIB,
    )
    write_group_chunks: int = setting(
        500,
        about="Most chunks in one transaction, unless one source alone has more.",
        unit="chunks",
        ge=1,
        le=5000,
    )


class Limits(Group):
    """What a call may ask for."""

    prefix = "max_"
    batch_documents: int = setting(
        1000, about="Documents in one search-index call.", unit="documents", ge=1, le=100_000
    )
    batch_bytes: ByteSize = setting(
        ByteSize(24 * MIB), about="All documents of a call.", unit="bytes", ge=KIB, le=1024 * MIB
    )
    document_bytes: ByteSize = setting(
        ByteSize(10 * MIB), about="One document.", unit="bytes", ge=KIB, le=1024 * MIB
    )
    document_chunks: int = setting(
        20_000, about="Chunks of one document.", unit="chunks", ge=1, le=1_000_000
    )
    stored_bytes: ByteSize = setting(
        ByteSize(64 * MIB),
        about="One document as it is stored: its text, and with every chunk title and metadata.",
        unit="bytes",
        ge=64 * KIB,
        le=4096 * MIB,
    )
    file_bytes: ByteSize = setting(
        ByteSize(10 * MIB),
        about="One file of search-index-file; larger ones are skipped.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    unpacked_bytes: ByteSize = setting(
        ByteSize(100 * MIB),
        about="One DOCX, PPTX or XLSX file, unpacked; larger ones are skipped.",
        unit="bytes",
        ge=KIB,
        le=1024 * MIB,
    )
    query_bytes: ByteSize = setting(
        ByteSize(128 * KIB), about="A query.", unit="bytes", ge=256, le=16 * MIB
    )
    limit: int = setting(1000, about="Results of a query.", unit="results", ge=1, le=10_000)
    filter_depth: int = setting(8, about="Nesting of a filter.", unit="levels", ge=1, le=64)
    filter_nodes: int = setting(
        256, about="Conditions in a filter.", unit="conditions", ge=1, le=10_000
    )
    concurrent_calls: int = setting(
        32,
        about="Calls in progress; further ones are told to come back.",
        unit="calls",
        ge=1,
        le=10_000,
    )
    message_bytes: ByteSize = setting(
        ByteSize(32 * MIB),
        about="A message on the network.",
        unit="bytes",
        ge=64 * KIB,
        le=1024 * MIB,
    )

    @model_validator(mode="after")
    def _sizes_nest(self) -> Limits:
        if self.document_bytes > self.batch_bytes:
            raise ValueError("max_document_bytes must not exceed max_batch_bytes")
        if self.batch_bytes > self.message_bytes:
            raise ValueError("max_batch_bytes must not exceed max_message_bytes")
        return self


class Ranking(Group):
    """How candidates are found and ordered."""

    candidates: int = setting(
        40, about="Candidates that each arm contributes.", unit="chunks", ge=10, le=10_000
    )
    ef_search: int = setting(
        100, about="Beam of the vector search; wider finds more.", unit="chunks", ge=10, le=10_000
    )
    scan_below: int = setting(
        1000,
        about="Size of a collection below which every vector is compared, which is exact.",
        unit="chunks",
        ge=0,
        le=100_000,
    )
    bm25_k1: float = setting(
        1.2,
        about="Saturation of a term's frequency, in generations that are built from now on.",
        ge=0,
        le=10,
    )
    bm25_b: float = setting(
        0.75,
        about="Weight of a text's length, in generations that are built from now on.",
        ge=0,
        le=1,
    )
    title_weight: float = setting(
        1.5, about="Weight of a term in the title; 1 in the text.", ge=0, le=100
    )
    fusion: Literal["convex", "rrf"] = setting(
        "convex", about="How the lists of the arms become one."
    )
    fusion_k: float = setting(
        60.0, about="Rank constant of reciprocal rank fusion.", ge=0, le=10_000
    )
    fusion_semantic: float = setting(0.7, about="Weight of the semantic arm.", ge=0, le=100)
    fusion_keyword: float = setting(0.3, about="Weight of the keyword arm.", ge=0, le=100)
    fusion_peak: float = setting(
        0.8, about="How far the semantic weight follows its best hit; 0 keeps it.", ge=0, le=10
    )
    feedback: float = setting(
        0.5, about="How far a hybrid query moves towards its first hits; 0 not at all.", ge=0, le=10
    )
    phrasing: float = setting(
        0.4, about="How much words side by side in a hybrid query count; 0 not at all.", ge=0, le=1
    )

    @model_validator(mode="after")
    def _some_arm_counts(self) -> Ranking:
        if self.fusion_semantic + self.fusion_keyword == 0:
            raise ValueError("fusion_semantic and fusion_keyword must not both be 0")
        return self


class Files(Group):
    """Files read and written on this machine."""

    allowed_roots: tuple[Path, ...] = setting(
        about="Directories that search-index-file may read.",
        default_text="the working directory",
        min_length=1,
    )
    timeout: float = setting(
        30.0,
        key="file_timeout",
        about="Longest time for reading one PDF, DOCX, PPTX, XLSX or HTML file.",
        unit="seconds",
        gt=0,
        le=3600,
    )
    data_dir: Path = setting(
        about="Databases of the local stack.",
        default_text="$XDG_DATA_HOME/ability-search",
    )
    cache_dir: Path = setting(
        about="Models, built or fetched.",
        default_text="$XDG_CACHE_HOME/ability-search",
    )
    identity_file: Path = setting(
        about="Key that brokers know this worker by; made at first start.",
        default_text="$XDG_CONFIG_HOME/ability-search/identity.pem",
    )
    secret_key_file: Path = setting(
        about="Key that secrets.toml is encrypted with; made by `secret set`.",
        default_text="$XDG_CONFIG_HOME/ability-search/secrets.key",
    )


class Logging(Group):
    """What is logged, on stderr."""

    prefix = "log_"
    level: Literal["debug", "info", "warning", "error"] = setting("info", about="Least severity.")
    format: Literal["pretty", "json"] = setting("pretty", about="For people or for collectors.")

    @field_validator("level", "format", mode="before")
    @classmethod
    def _ignore_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


class Broker(Group):
    """A broker to connect to.

    The worker joins all that the files name, the database ability and the model manager the first.
    """

    url: WebSocketUrl = setting(
        Url("ws://localhost:8080/kadi"),
        env=("BROKER_URL", "KADI_BROKER_URL"),
        home="config.toml `[broker.<name>] URL`, agent.json `brokers.<name>`",
        about="Address of the only broker; without it the files may name several.",
    )
    networks: tuple[str, ...] = setting(
        ("global",),
        env=("BROKER_NETWORKS", "KADI_BROKER_NETWORKS"),
        home="config.toml `[broker.<name>] NETWORKS`, agent.json `networks`",
        about="Networks to join.",
        min_length=1,
    )
    name: str = "local"
    """Name of its entry in the files."""
    mode: str = "native"
    """``MODE`` of that entry, lower case; this client knows only ``native``, a plain WebSocket."""


GROUPS: dict[str, type[Group]] = {
    "chunking": Chunking,
    "embedding": Embedding,
    "reranker": Reranker,
    "expansion": Expansion,
    "aspects": Aspects,
    "database": Database,
    "jobs": JobSettings,
    "limits": Limits,
    "ranking": Ranking,
    "files": Files,
    "logging": Logging,
    "metrics": Metrics,
    "tracing": Tracing,
    "broker": Broker,
    "deployment": Deployment,
    "local_broker": LocalBroker,
    "models": Models,
    "arcadedb": Arcadedb,
    "gateway": Gateway,
}
