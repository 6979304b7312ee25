"""A collection: its record, its name and the names of its types."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, NamedTuple
from unicodedata import category, normalize

from ability_search.errors import InvalidInput

K1: Final = 1.2
B: Final = 0.75
"""The usual parameters of BM25."""

Context = int | Literal["section"]
"""Context of a chunk: so many chunks before and after it, or the beginning of its section."""
SECTION: Final = "section"

LONGEST_NAME = 64
"""Maximum length of a collection's name in characters."""
_LONGEST_MODEL = 256
_TYPE_TOKEN = re.compile(r"^Chunk_.*_([0-9a-f]{11})[0-9a-f]{6}$")


def public_name(name: str) -> str:
    """Return the name without the ``@token`` of a record of a generation under construction."""
    return name.partition("@")[0]


class ModelInput(NamedTuple):
    """An embedding model and the prefixes of its texts; fixed for a generation."""

    model: str
    query_prefix: str = ""
    passage_prefix: str = ""


class Calibration(NamedTuple):
    """The measured cosines of a generation, see :mod:`.calibration`."""

    chance: float
    near: float
    agreement: float


CALIBRATION: Final = Calibration(chance=0.0, near=0.5, agreement=1.0)
"""The assumption for a generation with too few documents to measure."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of chunking, analyzing and embedding documents, and of deriving kinds."""

    chunk_strategy: str
    chunk_size: int
    chunk_overlap: int
    language: str
    """Language of the full-text analysis."""
    model: str
    """Embedding model."""
    content_language: str = ""
    """Language of the first texts, as ISO 639 code; empty if it is not known."""
    kinds: tuple[str, ...] = ()
    """Kinds that are derived from each document."""
    kinds_by: str = "local"
    """The way to make them: ``local`` extraction, or a language model (``chat``)."""
    context: Context | None = None
    """Context of a chunk of prose, and turns before one of a conversation; ``None``: none for
    prose, and the turns of the settings."""
    dedup_threshold: float | None = None
    """Minimum cosine of a near-duplicate, in (0, 1]; ``None`` if there are none. It does not
    determine the chunks themselves."""
    query_prefix: str = ""
    """Prefix of each query for the model."""
    passage_prefix: str = ""
    """Prefix of each stored text for the model."""
    bm25_k1: float = K1
    """Term frequency saturation (k1) of the stored BM25 weights; fixed for a generation."""
    bm25_b: float = B
    """Length normalization (b) of those weights; fixed for a generation."""

    @property
    def model_input(self) -> ModelInput:
        """The model of the vectors, and the prefixes of the texts."""
        return ModelInput(self.model, self.query_prefix, self.passage_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Recipe):
    """The record of a collection. Times are epoch milliseconds."""

    name: str
    type: str
    """The chunk type of its live generation."""
    generation: int
    dimensions: int
    average_length: float
    """Average terms per chunk that the stored BM25 weights were computed with."""
    revision: int = 0
    """Incremented with every change of the stored data."""
    chunks: int = 0
    sources: int = 0
    tokens: int = 0
    tokens_min: int | None = None
    tokens_max: int | None = None
    duplicates: int = 0
    """Chunks left out of the indexes because an identical one represents them."""
    links: int = 0
    """Links between sources."""
    kind_chunks: int = 0
    """Number of chunks of derived kinds: titles, summaries, ... of other documents."""
    nested: bool = False
    """Whether documents other than derived kinds have been stored as documents of others."""
    graph: bool = False
    """Whether the vector graph has been built; until then vector search scans all embeddings."""
    kind_graph: bool = False
    """Whether the vector graph of the derived kinds has been built."""
    chance: float = CALIBRATION.chance
    """Mean cosine of chunks of different documents, see :mod:`.calibration`."""
    near: float = CALIBRATION.near
    """Mean cosine of a chunk to its nearest neighbour in another document; above ``chance``."""
    agreement: float = CALIBRATION.agreement
    """Correlation of cosines with the information of shared words, given their number; -1 to 1."""
    calibrated: int = 0
    """Number of chunks when these three were measured; 0 if they are assumed."""
    created_at: int = 0
    updated_at: int = 0
    record: int = field(default=0, compare=False)
    """Revision of the record as read, which is in none of its fields; 0 if it was not read."""

    @property
    def public_name(self) -> str:
        """Name without ``@token``, which the record of a generation under construction carries."""
        return public_name(self.name)

    @property
    def may_have_children(self) -> bool:
        """Whether there may be documents of other documents, derived kinds included."""
        return self.nested or self.kind_chunks > 0

    def scanned(self, *, below: int) -> bool:
        """Return whether vector search scans all embeddings: fewer than ``below``, or no graph."""
        return not self.graph or self.chunks < below

    def kinds_scanned(self, *, below: int) -> bool:
        """Return the same as :meth:`scanned`, for the derived kinds."""
        return not self.kind_graph or self.kind_chunks < below


def new_collection(
    name: str, recipe: Recipe, *, dimensions: int, average_length: float, now: int
) -> Collection:
    """Return the record of a new, empty generation.

    Args:
        name: Name of the record.
        recipe: How its texts are chunked and embedded.
        dimensions: Dimensions of the vectors.
        average_length: Average number of terms of a chunk.
        now: Time in epoch milliseconds.

    Raises:
        InvalidInput: if the name of the model is empty or too long.
    """
    checked_model(recipe.model)
    return Collection(
        **{each.name: getattr(recipe, each.name) for each in fields(Recipe)},
        name=name,
        type=new_type(name, now=now),
        generation=1,
        dimensions=dimensions,
        average_length=average_length,
        created_at=now,
        updated_at=now,
    )


def new_type(name: str, *, now: int) -> str:
    """Return a name for a generation of a collection, which no generation has had.

    It is an identifier: 32 characters of the collection's name for readers, then a hash that
    distinguishes names such as ``a.b`` and ``a_b``, and a token that encodes the time ``now``, in
    epoch milliseconds; see :func:`type_created_at`.
    """
    slug = re.sub(r"[^A-Za-z0-9]", "_", name)[:32]
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"Chunk_{slug}_{digest}_{now:011x}{secrets.token_hex(3)}"


def type_created_at(chunk_type: str) -> int | None:
    """Return when :func:`new_type` made this name, in epoch milliseconds; else ``None``."""
    found = _TYPE_TOKEN.search(chunk_type)
    return int(found[1], 16) if found else None


def is_collection_name(name: str) -> bool:
    """Return True for 1 to 64 letters, digits, ``.``, ``_`` and ``-``, first a letter or digit.

    Letters and digits of every script count, in Unicode normal form C.
    """
    return bool(name) and name == proposed_name(name)


def proposed_name(text: str) -> str:
    """Return a text made a valid collection name; empty if it has no letter or digit."""
    characters = (
        # Vowel signs of Indic scripts, for one, are marks.
        each if each in "._-" or each.isalnum() or category(each).startswith("M") else "\0"
        for each in normalize("NFC", text)
    )
    usable = re.sub("\0+", "-", "".join(characters))
    begin = next((place for place, each in enumerate(usable) if each.isalnum()), len(usable))
    return usable[begin : begin + LONGEST_NAME]


@lru_cache
def checked_name(name: str) -> str:
    """Return ``name`` if it is a valid collection name.

    Raises:
        InvalidInput: if it is not.
    """
    if not is_collection_name(name):
        raise InvalidInput(
            "collection",
            "not a collection name",
            hint="Use 1 to 64 letters, digits, . _ - and begin with a letter or a digit.",
        )
    return name


def checked_model(name: str) -> str:
    """Return ``name`` if it can be the name of a model: 1 to 256 characters.

    Raises:
        InvalidInput: if it cannot.
    """
    if not 1 <= len(name) <= _LONGEST_MODEL:
        raise InvalidInput(
            "model",
            f"must have 1 to {_LONGEST_MODEL} characters, not {len(name)}",
            hint="Use the name of a model that the model manager serves.",
        )
    return name
