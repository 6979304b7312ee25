"""Judged retrieval sets in the BEIR layout.

::

    corpus.jsonl                      {"_id": ..., "title": ..., "text": ..., "metadata": {...}}
    queries.jsonl                     {"_id": ..., "text": ..., "category": ..., "negative": ...,
                                       "asOf": ...}
    qrels.tsv or qrels/test.tsv       query-id <TAB> corpus-id <TAB> score, below a header

``category``, ``negative`` and ``asOf`` are extensions; ``asOf`` is the date or instant of a query,
in the format of ``search-query``.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ability_search.errors import InvalidInput
from ability_search.extensions.evaluation.runs import SetDescription
from ability_search.filters.operands import instants
from kadi_client.tools import validation_text

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
QRELS = ("qrels.tsv", "qrels/test.tsv")

_COLUMNS = "query-id, corpus-id, score"
_GRADE = re.compile(r"\s*[+-]?\d+\s*")

Qrels = Mapping[str, Mapping[str, int]]
"""Query -> document -> grade; 0 is not relevant."""


def _checked_moment(text: str) -> str:
    instants("asOf", text)
    return text


class _Line(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True, hide_input_in_errors=True, frozen=True)
    id: str = Field(alias="_id", min_length=1)


class _DocumentLine(_Line):
    """A document within the limits of ``search-index``, so that it cannot be refused later."""

    id: str = Field(alias="_id", min_length=1, max_length=1024)
    title: str | None = Field(None, max_length=4096)
    text: str
    metadata: dict[str, Any] | None = None

    @property
    def content(self) -> str:
        """Return the text, or the title of a document without text; empty if both are blank."""
        text = self.text if self.text.strip() else self.title or ""
        return text if text.strip() else ""


class JudgedQuery(_Line):
    """A query of a judged set."""

    text: str = Field(pattern=r"\S")
    category: str | None = None
    negative: bool = False
    """Whether the corpus has no answer to it."""
    as_of: Annotated[str, AfterValidator(_checked_moment)] | None = Field(None, alias="asOf")
    """Date or instant of the query, as in ``search-query``; ``None`` for that of the run."""


L = TypeVar("L", bound=_Line)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A judged set; :meth:`documents` reads its documents lazily."""

    directory: Path
    sources: frozenset[str]
    """Ids of the documents with text."""
    queries: tuple[JudgedQuery, ...]
    """Queries with a relevant document, in the order of the file."""
    negatives: tuple[JudgedQuery, ...]
    """Queries without an answer."""
    qrels: Qrels
    corpus_digest: str
    """SHA-256 of corpus.jsonl, in hexadecimal."""
    description: SetDescription

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the documents with text, as input of ``search-index``."""
        for _, row in _lines(self.directory / CORPUS, _DocumentLine):
            if row.content:
                yield {
                    "source": row.id,
                    "title": row.title or "",
                    "content": row.content,
                    "metadata": row.metadata or {},
                }


def read_dataset(directory: Path) -> Dataset:
    """Read and validate a judged set.

    Raises:
        InvalidInput: if the set is invalid; the message names the file and the line.
    """
    if not directory.is_dir():
        raise InvalidInput("DIR", f"{directory} is not a directory")
    corpus, queries, qrels = _files(directory)
    texts = {row.id: bool(row.content) for row in _distinct(corpus, _DocumentLine)}
    if not any(texts.values()):
        raise InvalidInput(str(corpus), "no document has text")
    by_id = {query.id: query for query in _distinct(queries, JudgedQuery)}
    judgements = _read_qrels(qrels, texts, by_id)
    judged = {query for query, grades in judgements.items() if max(grades.values()) > 0}
    if not judged:
        raise InvalidInput(str(qrels), "no query has a relevant document")
    answered = tuple(query for query in by_id.values() if query.id in judged)
    negatives = tuple(query for query in by_id.values() if query.negative)
    corpus_digest, *others = map(_digest, (corpus, queries, qrels))
    return Dataset(
        directory=directory,
        sources=frozenset(id for id, has_text in texts.items() if has_text),
        queries=answered,
        negatives=negatives,
        qrels={query: judgements[query] for query in sorted(judged)},
        corpus_digest=corpus_digest,
        description=SetDescription(
            name=directory.resolve().name,
            digest=sha256("".join([corpus_digest, *others]).encode()).hexdigest(),
            documents=len(texts),
            blank=sum(not has_text for has_text in texts.values()),
            queries=len(answered),
            negatives=len(negatives),
            unjudged=len(by_id) - len({query.id for query in (*answered, *negatives)}),
            dated=sum(query.as_of is not None for query in (*answered, *negatives)),
        ),
    )


def _files(directory: Path) -> tuple[Path, Path, Path]:
    qrels = [directory / name for name in QRELS if (directory / name).is_file()]
    missing = [name for name in (CORPUS, QUERIES) if not (directory / name).is_file()]
    if not qrels:
        missing.append(" or ".join(QRELS))
    if missing:
        raise InvalidInput(
            "DIR",
            f"{directory} has no {', no '.join(missing)}",
            hint="Expected a directory in BEIR layout: corpus.jsonl, queries.jsonl, qrels.tsv.",
        )
    return directory / CORPUS, directory / QUERIES, qrels[0]


def _lines(path: Path, kind: type[L]) -> Iterator[tuple[int, L]]:
    """Yield the non-blank lines and their numbers, from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            try:
                yield number, kind.model_validate_json(line)
            except ValidationError as exc:
                raise InvalidInput(f"{path}:{number}", validation_text(exc)) from exc
            except InvalidInput as exc:
                raise InvalidInput(f"{path}:{number}", str(exc), hint=exc.hint) from exc


def _distinct(path: Path, kind: type[L]) -> Iterator[L]:
    seen: set[str] = set()
    for number, row in _lines(path, kind):
        if row.id in seen:
            raise InvalidInput(f"{path}:{number}", f"duplicate _id {row.id!r}")
        seen.add(row.id)
        yield row
    if not seen:
        raise InvalidInput(str(path), "is empty")


def _read_qrels(
    path: Path, documents: Mapping[str, bool], queries: Mapping[str, JudgedQuery]
) -> dict[str, dict[str, int]]:
    try:
        header, *lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as exc:
        raise InvalidInput(str(path), "is not UTF-8") from exc
    columns = header.split("\t")
    if len(columns) < 3 or _GRADE.fullmatch(columns[2]):
        raise InvalidInput(f"{path}:1", f"expected a header: {_COLUMNS}, separated by tabs")
    qrels: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        where, columns = f"{path}:{number}", line.split("\t")
        if len(columns) != 3 or not _GRADE.fullmatch(columns[2]):
            expected = f"expected {_COLUMNS} (a whole number), separated by tabs"
            raise InvalidInput(where, expected)
        query, document, grade = columns[0], columns[1], int(columns[2])
        if query not in queries:
            raise InvalidInput(where, f"no query {query!r} in {QUERIES}")
        if document not in documents:
            raise InvalidInput(where, f"no document {document!r} in {CORPUS}")
        if queries[query].negative and grade > 0:
            raise InvalidInput(where, f"query {query!r} is negative, but has a relevant document")
        if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
            raise InvalidInput(where, f"{document!r} is judged twice for query {query!r}")
    return qrels


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
