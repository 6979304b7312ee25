"""The eight tools as they are described everywhere: on the network, over HTTP, to assistants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ability_search.jobs.events import COMPLETED as COMPLETED
from ability_search.jobs.events import FAILED as FAILED
from ability_search.jobs.events import PROGRESS as PROGRESS
from ability_search.wire import inputs, results


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """A tool; what it does when called stands in :mod:`ability_search.tools`."""

    name: str
    title: str
    """For people."""
    summary: str
    """What it does."""
    usage: str
    """When to take it, and when another one; for whoever chooses by the descriptions."""
    params: type[BaseModel]
    result: type[BaseModel]
    read_only: bool = False
    """Whether nothing is changed by calling it."""
    destructive: bool = False
    """Whether it can take away what was there."""
    idempotent: bool = True
    """Whether calling it again with the same input changes nothing more."""

    @property
    def description(self) -> str:
        """What it does and when to take it."""
        return f"{self.summary} {self.usage}"

    @property
    def reports_progress(self) -> bool:
        """Whether a call is a job, of which events tell."""
        return "job_id" in self.params.model_fields

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the input."""
        return self.params.model_json_schema(by_alias=True)

    @property
    def output_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the result of a call that succeeded."""
        return self.result.model_json_schema(by_alias=True, mode="serialization")


TOOLS: tuple[ToolRow, ...] = (
    ToolRow(
        name="search-index",
        title="Index documents",
        summary="Chunk, embed and store documents in a collection, which is created on first use."
        " Unchanged documents cost nothing.",
        usage="Use it for texts that you hold; for files on the worker's machine take"
        " search-index-file. A document with the source of an earlier one replaces it.",
        params=inputs.IndexInput,
        result=results.IndexResult,
        destructive=True,
    ),
    ToolRow(
        name="search-index-file",
        title="Index files",
        summary="Index a file or a directory on the worker's machine.",
        usage="Reads Markdown, text, code, HTML, JSON, CSV, PDF, Office files and notebooks below"
        " its allowed roots. Call it again after changes; sweep removes what is gone.",
        params=inputs.IndexFileInput,
        result=results.IndexFileResult,
        destructive=True,
    ),
    ToolRow(
        name="search-query",
        title="Search",
        summary="Search a collection by meaning, by words, or both (hybrid, the default).",
        usage="Use it first to answer a question from what was indexed; collection * searches"
        " everything. Set maxResultTokens to what you can read, expand for text around the hits,"
        " mode keyword for names and error messages. Hits name their source: cite it.",
        params=inputs.QueryInput,
        result=results.QueryResult,
        read_only=True,
    ),
    ToolRow(
        name="search-similar",
        title="Find similar chunks",
        summary="Find the chunks of a collection that are nearest to one of its chunks.",
        usage="Use it on the chunkId of a hit to see more like it; for a question or words of your"
        " own take search-query.",
        params=inputs.SimilarInput,
        result=results.SimilarResult,
        read_only=True,
    ),
    ToolRow(
        name="search-reindex",
        title="Reindex a collection",
        summary="Chunk and embed a collection anew from what it stores, in the background if"
        " asked; or clear it.",
        usage="Use it to change the model, the chunking or the language of a collection. New"
        " or changed texts need search-index only.",
        params=inputs.ReindexInput,
        result=results.ReindexResult,
        destructive=True,
    ),
    ToolRow(
        name="search-delete",
        title="Delete a collection or a source",
        summary="Delete a collection, or one source of it.",
        usage="This cannot be undone; without source the whole collection goes.",
        params=inputs.DeleteInput,
        result=results.DeleteResult,
        destructive=True,
    ),
    ToolRow(
        name="search-collections",
        title="List collections",
        summary="List all collections with the number and the size of their chunks.",
        usage="Use it to learn what can be searched.",
        params=inputs.CollectionsInput,
        result=results.CollectionsResult,
        read_only=True,
    ),
    ToolRow(
        name="search-collection-info",
        title="Describe a collection",
        summary="Describe a collection and list its sources, page by page.",
        usage="Use it to see whether a document is indexed, and by which model. include adds chunk"
        " sizes, growth or a map of the chunks.",
        params=inputs.CollectionInfoInput,
        result=results.CollectionInfoResult,
        read_only=True,
    ),
)
"""All of them, in the order in which they are listed."""

BY_NAME: Mapping[str, ToolRow] = {row.name: row for row in TOOLS}
