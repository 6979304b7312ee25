"""Searches in great number while nothing is broken, to see whether memory grows with them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from chaos import texts
from chaos.callers import KadiCaller
from chaos.expectations import Violation
from chaos.ledger import Ledger
from chaos.steps import MODES, Step

COLLECTION = "searched"
OWNER = "searches"
DOCUMENTS = 300
AT_ONCE = 8
CALL_SECONDS = 60.0
_NUMBERS = 320


async def search(kadi: KadiCaller, ledger: Ledger, seed: int, total: int, seconds: float) -> None:
    """Search ``total`` times in all modes, or as often as ``seconds`` allow; compare the hits.

    Each query is a text that was not asked before, of words that were: the bounded caches of words
    would look like a leak while they fill. A keyword search for the word of a document
    must find it; the others must fill the page.
    """
    try:
        await _fill(kadi)
    except Violation as violation:
        ledger.violated(Step("searches", 0, "fill", {}), violation)
        return
    numbers = iter(range(total))
    ends = time.monotonic() + seconds

    async def searching() -> None:
        for number in numbers:
            if time.monotonic() > ends:
                return
            step = _step(seed, number)
            try:
                answer = await _answer(kadi, "search-query", step.parameters["input"])
                _check(step, answer)
            except Violation as violation:
                ledger.violated(step, violation)
                return
            ledger.queries += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(searching())


async def _fill(kadi: KadiCaller) -> None:
    documents = [texts.document(OWNER, f"d{n}", n) for n in range(DOCUMENTS)]
    for start in range(0, DOCUMENTS, 50):
        given = {"collection": COLLECTION, "documents": documents[start : start + 50]}
        await _answer(kadi, "search-index", given)


def _step(seed: int, number: int) -> Step:
    chance = random.Random(f"{seed}/searches/{number}")
    source = f"d{chance.randrange(DOCUMENTS)}"
    numbers = " ".join(map(str, divmod(number, _NUMBERS)))
    words = f"{texts.source_word(OWNER, source)} {numbers} {chance.choice(('backup', 'harbour'))}"
    given = {
        "collection": COLLECTION,
        "query": words,
        "mode": chance.choice(MODES),
        "limit": chance.choice((3, 10)),
    }
    return Step("searches", number, "query", {"source": source, "input": given})


async def _answer(kadi: KadiCaller, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    outcome = await kadi.call(tool, given, CALL_SECONDS)
    if outcome.answer is None or outcome.answer.get("failed") or "degraded" in outcome.answer:
        seen = f"{outcome.code} {outcome.text} {str(outcome.answer)[:300]}"
        raise Violation(f"{tool} to succeed while nothing is broken", seen)
    return outcome.answer


def _check(step: Step, answer: dict[str, Any]) -> None:
    given = step.parameters["input"]
    hits = answer["results"]
    if given["mode"] == "keyword":
        if step.parameters["source"] not in {hit["source"] for hit in hits}:
            raise Violation(f"{step.parameters['source']} to be found", str(hits)[:500])
    elif len(hits) != given["limit"]:
        raise Violation(f"{given['limit']} hits", str(len(hits)))
