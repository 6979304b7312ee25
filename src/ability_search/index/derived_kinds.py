"""Kinds (such as a summary) derived from documents, by extraction or with a language model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ability_search.documents import Document, Passage
from ability_search.errors import ChatUnavailable
from ability_search.index.index_ports import IndexPorts
from ability_search.index.kinds.chat_kinds import PROMPTS, read_answer, shown
from ability_search.index.kinds.extracted_kinds import Statement, extracted
from ability_search.index.preparation import Prepared, Recipe, analyzed, generated_source
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.strategies import chunk

_CHAT = "chat"
_CONVERSATIONS = 4
"""Documents that the language model processes at the same time."""


class KindDerivation:
    """Derives the kinds of the documents of one call, as the recipe says."""

    def __init__(self, ports: IndexPorts, recipe: Recipe) -> None:
        self._chat = ports.chat
        self._recipe = recipe
        self._settings = ports.settings.kinds
        self._analyzer = analyzer_for(recipe.language)
        self._count = ports.counter
        self._missed = 0
        self._reason = ""

    @property
    def concurrency(self) -> int:
        """Number of documents to process at the same time."""
        return _CONVERSATIONS if self._recipe.kinds and self._recipe.kinds_by == _CHAT else 1

    @property
    def warnings(self) -> list[str]:
        """Warnings for the caller."""
        if not self._missed:
            return []
        return [
            f"kindsBy: for {self._missed} of the documents kinds were extracted from the text,"
            f" because the language model failed: {self._reason}"
        ]

    async def derive(self, prepared: Prepared) -> Prepared:
        """Add the derived kinds to a document, in place; a failure of the model never fails it."""
        kinds = self._recipe.kinds_of(prepared.document)
        if not kinds or not prepared.passages:
            return prepared
        answers = await self._ask(prepared.document, kinds)
        prepared.kinds = await asyncio.to_thread(self._prepared_kinds, prepared, kinds, answers)
        prepared.missing += sum(kind.missing for kind in prepared.kinds)
        return prepared

    async def _ask(self, document: Document, kinds: Sequence[str]) -> dict[str, list[Statement]]:
        """Return the language model's answers by kind; empty if it is not used or fails."""
        answers: dict[str, list[Statement]] = {}
        if self._recipe.kinds_by != _CHAT:
            return answers
        text = shown(document)
        for kind in kinds:
            try:
                answer = await self._chat.complete(
                    PROMPTS[kind],
                    text,
                    model=self._settings.model,
                    timeout=self._settings.timeout,
                )
            except ChatUnavailable as exc:
                self._missed += 1
                self._reason = str(exc)
                break
            answers[kind] = read_answer(kind, answer)
        return answers

    def _prepared_kinds(
        self, prepared: Prepared, kinds: Sequence[str], answers: dict[str, list[Statement]]
    ) -> list[Prepared]:
        found = []
        for kind in kinds:
            statements = answers.get(kind) or extracted(kind, prepared.document, prepared.passages)
            if statements:
                found.append(self._prepared_kind(prepared, kind, statements))
        return found

    def _prepared_kind(
        self, prepared: Prepared, kind: str, statements: Sequence[Statement]
    ) -> Prepared:
        whole = prepared.document
        document = replace(
            whole,
            source=generated_source(whole.source, kind),
            content="\n".join(statement.text for statement in statements),
            kind=kind,
            format="text",
            language=None,
            links=(),
            of=whole.source,
            file=False,
            file_hash=None,
            generated=True,
        )
        return analyzed(
            document,
            list(self._passages(statements)),
            content_hash=prepared.content_hash,
            analyzer=self._analyzer,
            prefix=self._recipe.passage_prefix,
        )

    def _passages(self, statements: Sequence[Statement]) -> Iterator[Passage]:
        """Yield a passage for each statement, or several if it is longer than a chunk may be."""
        start, line = 0, 0
        for statement in statements:
            for passage in chunk(
                statement.text,
                strategy="paragraph",
                max_tokens=self._recipe.chunk_size,
                count=self._count,
            ):
                yield replace(
                    passage,
                    start=start + passage.start,
                    end=start + passage.end,
                    start_line=line + passage.start_line,
                    end_line=line + passage.end_line,
                    breadcrumb=statement.breadcrumb,
                )
            start += len(statement.text) + 1
            line += statement.text.count("\n") + 1
