"""Kinds (such as a summary) derived from documents, by extraction or with a language model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from ability_search.bounded_batches import batches
from ability_search.collection import Recipe
from ability_search.documents import KINDS, Document, Passage
from ability_search.errors import ChatUnavailable
from ability_search.extensions.kinds.chat_kinds import (
    ENOUGH,
    MOST_CHARACTERS,
    PROMPTS,
    Part,
    parts,
    read_answer,
    shown_title,
)
from ability_search.extensions.kinds.extracted_kinds import CandidateSentence, extracted
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import Prepared, analyzed, generated_source
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.strategies import chunk

_CHAT = "chat"
_PROPOSITIONS = "propositions"
_CONVERSATIONS = 4
"""Documents that the language model processes at the same time."""
_LONG = 32
_DISTINCT = 0.25
"""Minimum share of distinct terms in a longer text; one that repeats itself has fewer."""


class KindDerivation:
    """Derives the kinds of the documents of one call, as the recipe says."""

    def __init__(self, ports: IndexPorts, recipe: Recipe) -> None:
        self._ports = ports
        self._recipe = recipe
        self._analyzer = analyzer_for(recipe.language)
        self._missed: set[str] = set()
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
            f"kindsBy: for {len(self._missed)} of the documents kinds were extracted from the text,"
            f" because the language model failed: {self._reason}"
        ]

    def marks(self, document: Document) -> tuple[object, ...]:
        """Return the kinds of a document and how they are made; empty if it has none."""
        kinds = self._kinds_of(document)
        return (kinds, self._recipe.kinds_by) if kinds else ()

    def _kinds_of(self, document: Document) -> Sequence[str]:
        """Return the kinds to derive; none from a document that is itself of such a kind."""
        return () if document.kind in KINDS else self._recipe.kinds

    async def derive(self, prepared: Prepared) -> None:
        """Add the derived kinds to a document, in place; a failure of the model never fails it."""
        kinds = self._kinds_of(prepared.document)
        if not kinds or not prepared.passages:
            return
        answers = await self._ask(prepared, kinds)

        def prepare_kinds() -> Iterator[Prepared]:
            document, passages = prepared.document, prepared.passages
            for kind in kinds:
                if said := answers.get(kind) or extracted(kind, document, passages):
                    yield self._prepared_kind(prepared, kind, said)

        prepared.kinds = await asyncio.to_thread(lambda: [*prepare_kinds()])
        prepared.missing += sum(kind.missing for kind in prepared.kinds)

    async def _ask(
        self, prepared: Prepared, kinds: Sequence[str]
    ) -> dict[str, list[CandidateSentence]]:
        """Return the language model's answers by kind; those that it gave before it failed."""
        answers: dict[str, list[CandidateSentence]] = {}
        if self._recipe.kinds_by != _CHAT:
            return answers
        whole = parts(prepared.document, prepared.passages)
        words = set(prepared.title_terms).union(*prepared.terms)
        for kind in kinds:
            try:
                if kind == _PROPOSITIONS:
                    found = await self._propositions(prepared, whole)
                else:
                    found = await self._combined(kind, shown_title(prepared.document), whole)
                self._check(kind, found, words)
            except ChatUnavailable as exc:
                self._missed.add(prepared.document.source)
                self._reason = str(exc)
                if exc.retryable:
                    break
            else:
                answers[kind] = found
        return answers

    def _check(self, kind: str, found: Sequence[CandidateSentence], words: Set[str]) -> None:
        """Check that an answer is about the document, which has ``words``.

        A refusal has none of them; small models copy the instruction.
        """
        own = {term for each in found for term in self._analyzer.terms(each.text)}
        copied = own.intersection(self._analyzer.terms(PROMPTS[kind])) - words
        if words and (words.isdisjoint(own) or 2 * len(copied) > len(own)):
            error = ChatUnavailable("its answer does not describe the document")
            error.retryable = False
            raise error

    async def _propositions(
        self, prepared: Prepared, whole: Sequence[Part]
    ) -> list[CandidateSentence]:
        """Return the propositions of all parts, each with the passage that has most of its words.

        Of equal passages the first is taken. A proposition without a word of its part is left out.
        """
        found: dict[str, CandidateSentence] = {}
        for part in whole:
            words = {index: set(prepared.terms[index]) for index in part.passages}
            for statement in await self._answer(_PROPOSITIONS, part.text):
                own = set(self._analyzer.terms(statement.text))
                chunk = max(words, key=lambda index: len(own & words[index]))
                if own & words[chunk]:
                    breadcrumb = prepared.passages[chunk].breadcrumb
                    found.setdefault(
                        statement.text, CandidateSentence(statement.text, breadcrumb, chunk)
                    )
        return list(found.values())

    async def _combined(
        self, kind: str, title: str, whole: Sequence[Part]
    ) -> list[CandidateSentence]:
        """Return one answer for a document: that for the answers for its parts."""
        answers = [await self._answer(kind, part.text) for part in whole]
        while len(answers) > 1:
            lines = [each.text for answer in answers for each in answer]
            answers = [
                await self._answer(kind, "\n".join([title, "", *some]))
                for some in batches(lines, len, most=len(lines), most_bytes=MOST_CHARACTERS // 2)
            ]
        return answers[0] if answers else []

    async def _answer(self, kind: str, text: str) -> list[CandidateSentence]:
        settings, enough = self._ports.settings.kinds, ENOUGH[kind]
        answer = await self._ports.chat.complete(
            PROMPTS[kind], text, model=settings.model, timeout=settings.timeout, enough=enough
        )
        found = [(each, self._analyzer.terms(each.text)) for each in read_answer(kind, answer)]
        # Those of small models repeat themselves.
        return [
            each
            for each, terms in found
            if len(terms) <= _LONG or len(set(terms)) >= _DISTINCT * len(terms)
        ]

    def _prepared_kind(
        self, prepared: Prepared, kind: str, statements: Sequence[CandidateSentence]
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
        passages = list(self._passages(statements))
        return analyzed(document, passages, self._recipe, label=self._ports.added.label)

    def _passages(self, statements: Sequence[CandidateSentence]) -> Iterator[Passage]:
        """Yield a passage for each statement, or several if it is longer than a chunk may be."""
        start, line = 0, 0
        for statement in statements:
            for passage in chunk(
                statement.text,
                strategy="paragraph",
                max_tokens=self._recipe.chunk_size,
                count=self._ports.counter,
            ):
                yield replace(
                    passage,
                    start=start + passage.start,
                    end=start + passage.end,
                    start_line=line + passage.start_line,
                    end_line=line + passage.end_line,
                    breadcrumb=statement.breadcrumb,
                    of_chunk=statement.chunk,
                )
            start += len(statement.text) + 1
            line += statement.text.count("\n") + 1
