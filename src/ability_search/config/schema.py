"""The settings of the core: type, default, unit, bounds and description of each.

One group per concern. The name of a setting is its group's prefix and its attribute joined by ``_``
(an attribute may set another key): ``chunk_size`` is ``settings.chunking.size`` in code,
``search.chunk_size`` in config.yml and ``SEARCH_CHUNK_SIZE`` in the environment. The groups of an
extension are in its ``settings.py``, and their values in ``settings.of(Group)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import ByteSize, model_validator

from ability_search.config.agent_card import AgentCard
from ability_search.config.model_settings import Embedding, Expansion, Kinds, RerankerSettings
from ability_search.config.setting_fields import (
    KIB,
    MIB,
    DatabaseName,
    Glob,
    Group,
    HttpUrl,
    NonEmpty,
    Url,
    WebSocketUrl,
    seconds,
    setting,
    size,
)
from ability_search.text.chunkers import Strategy

G = TypeVar("G", bound=Group)


class Broker(Group):
    """Broker connection.

    The worker joins all brokers that the files name; the database ability and the model manager
    join the first.
    """

    url: WebSocketUrl = setting(
        Url("ws://localhost:8080/kadi"),
        env=("BROKER_URL", "KADI_BROKER_URL"),
        home="config.toml `[broker.<name>] URL`, agent.json `brokers.<name>`",
        about="Address of the broker, or of several brokers of one network, separated by commas,"
        " the next of which is used if one is lost; if unset, the files may name several networks.",
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


class Chunking(Group):
    """Chunking."""

    prefix = "chunk_"
    size: int = setting(500, about="Maximum size of a chunk.", unit="tokens", ge=16, le=8192)
    overlap: int = setting(
        50, about="Overlap of consecutive sliding windows.", unit="tokens", ge=0, le=4096
    )
    strategy: Strategy = setting("auto", about="Chunking strategy if the call sets none.")
    context: int = setting(
        2,
        about="Preceding turns that a turn of a conversation (`chat/7` after `chat/6`) is"
        " embedded and searched with; 0 disables it. Applies to what is indexed from now on.",
        unit="turns",
        ge=0,
        le=8,
    )
    tokenizer: Path | None = setting(
        None,
        key="tokenizer",
        about="Path of the embedding model's tokenizer.json, for exact token counts.",
        default_text="an estimate",
    )

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Chunking:
        if self.overlap >= self.size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        return self


class Database(Group):
    """Database."""

    prefix = "database_"
    name: DatabaseName = setting(
        "kadi_memory", key="database", about="Database that holds the collections."
    )
    timeout: float = seconds(30.0, about="Timeout of one statement.")
    patience: float = seconds(
        30.0, about="How long a statement waits for a database ability that is restarting.", ge=0
    )
    memory: bool = setting(
        False, about="Keep everything in the worker's memory, until it stops, without a database."
    )
    grace_period: float = seconds(
        10.0, about="Time a replaced generation is kept for running queries.", ge=0
    )
    write_group_bytes: ByteSize = size(
        4 * MIB,
        about="Maximum data per transaction, unless a single source is larger.",
        ge=64 * KIB,
        le=16 * MIB,
    )
    write_group_chunks: int = setting(
        500,
        about="Maximum chunks per transaction, unless a single source has more.",
        unit="chunks",
        ge=1,
        le=5000,
    )


class JobSettings(Group):
    """Jobs: long operations that another worker can take over."""

    prefix = "job_"
    lease: float = seconds(
        30.0,
        about="Lease of a job: if its worker does not renew it in time, another worker takes over.",
        ge=1,
    )
    patience: float = seconds(
        600.0,
        about="Time a job waits for an unavailable database or model before it fails.",
        ge=0,
        le=86_400,
    )


class Limits(Group):
    """Limits of calls, queries and messages."""

    prefix = "max_"
    batch_documents: int = setting(
        1000, about="Documents per search-index call.", unit="documents", ge=1, le=100_000
    )
    batch_bytes: ByteSize = size(24 * MIB, about="Total size of the documents in a call.")
    document_bytes: ByteSize = size(10 * MIB, about="Size of one document.")
    document_chunks: int = setting(
        20_000, about="Chunks of one document.", unit="chunks", ge=1, le=1_000_000
    )
    stored_bytes: ByteSize = size(
        64 * MIB,
        about="One document as it is stored: its text, and with every chunk title and metadata.",
        ge=64 * KIB,
        le=4096 * MIB,
    )
    file_bytes: ByteSize = size(
        10 * MIB, about="Size of one file in search-index-file; larger files are skipped."
    )
    unpacked_bytes: ByteSize = size(
        100 * MIB, about="Unpacked size of an Office file or a book; larger files are skipped."
    )
    query_bytes: ByteSize = size(128 * KIB, about="Size of a query.", ge=256, le=16 * MIB)
    limit: int = setting(1000, about="Results per query.", unit="results", ge=1, le=10_000)
    filter_depth: int = setting(8, about="Nesting depth of a filter.", unit="levels", ge=1, le=64)
    filter_nodes: int = setting(
        256, about="Conditions in a filter.", unit="conditions", ge=1, le=10_000
    )
    concurrent_calls: int = setting(
        32,
        about="Concurrent calls, at most half of them of one agent; further calls are queued.",
        unit="calls",
        ge=1,
        le=10_000,
    )
    waiting_calls: int = setting(
        1024,
        about="Queued calls, at most a quarter of them from one agent; further calls fail with"
        " `busy`.",
        unit="calls",
        ge=0,
        le=100_000,
    )
    message_bytes: ByteSize = size(32 * MIB, about="Size of a message on the network.", ge=64 * KIB)

    @property
    def values(self) -> int:
        """Objects and arrays in the input of a call, above all 50 for each document."""
        return 10_000 + 50 * self.batch_documents

    @model_validator(mode="after")
    def _sizes_nest(self) -> Limits:
        if self.document_bytes > self.batch_bytes:
            raise ValueError("max_document_bytes must not exceed max_batch_bytes")
        if self.batch_bytes > self.message_bytes:
            raise ValueError("max_batch_bytes must not exceed max_message_bytes")
        return self


class Reading(Group):
    """Read policy: the sources that queries may return, whatever filter the caller gives."""

    prefix = "read_"
    allow: tuple[Glob, ...] = setting(
        (), about="Globs: only sources that match one are returned; if empty, all.", max_length=256
    )
    deny: tuple[Glob, ...] = setting(
        (), about="Globs: sources that match one are never returned.", max_length=256
    )


class Ranking(Group):
    """Ranking."""

    candidates: int = setting(
        40, about="Candidates per retriever.", unit="chunks", ge=10, le=10_000
    )
    ef_search: int = setting(
        100,
        about="Beam width (ef) of the vector search; higher values improve recall.",
        unit="chunks",
        ge=10,
        le=10_000,
    )
    scan_below: int = setting(
        1000,
        about="Collection size below which vector search is an exact scan of all vectors.",
        unit="chunks",
        ge=0,
        le=100_000,
    )
    bm25_k1: float = setting(
        1.2,
        about="BM25 term frequency saturation (k1); applies to generations built from now on.",
        ge=0,
        le=10,
    )
    bm25_b: float = setting(
        0.75,
        about="BM25 length normalization (b); applies to generations built from now on.",
        ge=0,
        le=1,
    )
    fusion: Literal["convex", "rrf"] = setting(
        "convex", about="Fusion method: convex combination or reciprocal rank fusion."
    )
    fusion_k: float = setting(
        60.0, about="Rank constant of reciprocal rank fusion.", ge=0, le=10_000
    )
    fusion_semantic: float = setting(
        2.0,
        about="Weight of the semantic retriever, for a model that knows the texts.",
        ge=0,
        le=100,
    )
    fusion_keyword: float = setting(1.0, about="Weight of the keyword retriever.", ge=0, le=100)

    @model_validator(mode="after")
    def _some_arm_counts(self) -> Ranking:
        if self.fusion_semantic + self.fusion_keyword == 0:
            raise ValueError("fusion_semantic and fusion_keyword must not both be 0")
        return self


class Files(Group):
    """Files."""

    allowed_roots: tuple[Path, ...] = setting(
        about="Directories that search-index-file may read.",
        default_text="the working directory",
        min_length=1,
    )
    timeout: float = seconds(
        30.0,
        key="file_timeout",
        about="Timeout for reading one file that is not plain text, or one scanned page of it.",
    )
    data_dir: Path = setting(
        about="Directory of the local stack's databases.",
        default_text="$XDG_DATA_HOME/ability-search",
    )
    stack_start_timeout: float = seconds(
        120.0,
        about="Time for a component of the local stack to be ready. Raise it for a slow machine.",
    )
    cache_dir: Path = setting(
        about="Directory of built and downloaded models, and of the engine's loaded classes.",
        default_text="$XDG_CACHE_HOME/ability-search",
    )
    identity_file: Path = setting(
        about="Private key that identifies this worker to brokers; created at first start.",
        default_text="$XDG_CONFIG_HOME/ability-search/identity.pem",
    )
    secret_key_file: Path = setting(
        about="Encryption key of secrets.toml; created by `secret set`.",
        default_text="$XDG_CONFIG_HOME/ability-search/secrets.key",
    )


class Loading(Group):
    """Extensions of the process."""

    extensions: tuple[NonEmpty, ...] = setting(
        (),
        about="Names of extensions to load besides those that are on by default; with a minus sign"
        " before its name (`-evaluation`), an extension is left out. `ability-search extensions`"
        " lists them.",
    )
    offer: tuple[NonEmpty, ...] | None = setting(
        None,
        about="Tools of extensions that a worker offers besides the eight: their families, such as"
        " `memory` for `memory-write` and its like, or `all`.",
        default_text="none, by `ability-search up` all",
    )


class Tracing(Group):
    """Tracing."""

    prefix = "tracing_"
    endpoint: HttpUrl | None = setting(
        None,
        about="Address of an OpenTelemetry collector (OTLP over HTTP).",
        default_text="no traces",
    )
    propagate: bool = setting(
        True, about="Propagate the call id and trace context to the calls made on its behalf."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings by group; its ``repr`` never shows a credential."""

    chunking: Chunking
    embedding: Embedding
    reranker: RerankerSettings
    expansion: Expansion
    kinds: Kinds
    database: Database
    jobs: JobSettings
    limits: Limits
    reading: Reading
    ranking: Ranking
    files: Files
    loading: Loading
    tracing: Tracing
    brokers: tuple[Broker, ...]
    """The brokers that the worker joins, at least one."""
    added: Mapping[type[Group], Group]
    """The groups of installed extensions, by class."""
    agent: AgentCard
    """Identity, from agent.json."""
    present_secrets: frozenset[str] = frozenset()
    """Names of the secrets that this machine or the deployer has, and of all variables."""
    undecrypted_secrets: Mapping[str, str] = field(default_factory=dict)
    """Settings in secrets.toml that cannot be decrypted, and the problem of each."""
    found_addresses: Mapping[type[Group], str] = field(default_factory=dict)
    """File and key of each address of a broker or API that stands in a found file, by group."""
    warnings: tuple[str, ...] = ()
    """Ignored values and the reasons, for the log."""

    @property
    def broker(self) -> Broker:
        """The broker for commands that use a single connection."""
        return self.brokers[0]

    def of(self, group: type[G]) -> G:
        """Return the settings of a group.

        Raises:
            KeyError: if neither the core nor an installed extension has the group.
        """
        name = CORE_GROUPS.get(group)
        found = self.added[group] if name is None else getattr(self, name)
        assert isinstance(found, group)
        return found

    def with_group(self, group: Group) -> Settings:
        """Return the settings with ``group`` in place of the one of its class."""
        kind = type(group)
        changes: dict[str, Any] = {"added": {**self.added, kind: group}}
        if name := CORE_GROUPS.get(kind):
            changes = {name: group}
        return replace(self, **changes)


CORE_GROUPS: dict[type[Group], str] = {Broker: "broker"} | {
    kind: name
    for name, kind in get_type_hints(Settings).items()
    if isinstance(kind, type) and issubclass(kind, Group)
}
"""The attribute of each group of the core, in the order of the documentation."""
