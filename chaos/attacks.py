"""Hostile input of one agent: texts, calls, frames and requests that must not reach the others."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import websockets

from chaos.callers import CODES, HttpCaller, KadiCaller, Outcome
from chaos.expectations import Violation
from chaos.ledger import Ledger
from chaos.stack_process import StackProcess
from chaos.steps import Step

COLLECTION = "hostile"
CALL_SECONDS = 15.0
"""How long the attacker waits; then it gives the call up."""
ANSWER_SECONDS = 5.0

Document = dict[str, Any]


def _pumped(chance: random.Random) -> Document:
    unit, language = chance.choice(
        (
            ("<!--", "python"),
            ("<!--", "ruby"),
            ("((((", "javascript"),
            ("{{{{", "c"),
            ("<<A\n", "bash"),
            ("/*", "java"),
            ('"""', "python"),
        )
    )
    return {"content": unit * chance.choice((500, 12_000)), "format": "code", "language": language}


def _open_json(chance: random.Random) -> Document:
    return {"content": '{"a": "' + '\\"' * chance.choice((5_000, 100_000)), "format": "json"}


def _deep_json(chance: random.Random) -> Document:
    depth = chance.choice((200, 50_000))
    return {"content": '{"a":[' * depth + "1" + "]}" * depth, "format": "json"}


def _markdown(chance: random.Random) -> Document:
    unit = chance.choice(("> ", "- ", "* a\n\n", "[", "![[](", "`", "| a ", "#\n", "&amp;", "_*"))
    return {"content": unit * chance.choice((2_000, 60_000)), "format": "markdown"}


def _markup(chance: random.Random) -> Document:
    unit = chance.choice(("<div>", "<table><tr><td>", "<!--", "<a href='", "&lt;", "<svg><style>"))
    return {"content": unit * chance.choice((2_000, 40_000)), "format": "html"}


def _one_line(chance: random.Random) -> Document:
    size = chance.choice((200_000, 2_000_000))
    return {"content": chance.choice(("a", "ä", "a b", "0", "\u200b x", "名")) * size}


def _many_chunks(chance: random.Random) -> Document:
    words = " ".join(f"w{chance.randrange(10**6)}" for _ in range(chance.choice((20_000, 90_000))))
    return {"content": words}


def _metadata(chance: random.Random) -> Document:
    value: Any = "m" * chance.choice((1_000, 200_000))
    if chance.random() < 0.5:
        for _ in range(chance.choice((20, 400))):
            value = {"k": value}
    key = chance.choice(("value", "value", "a.b", "$where", "@type", "__proto__"))
    return {"content": "short text. " * 2_000, "metadata": {key: value}}


def _characters(chance: random.Random) -> Document:
    units = (
        "\x00",
        "\ufeff",
        "\u202e",
        "\U0001f468\u200d\U0001f469",
        "a\u0301" * 50,
        "\f",
        "\ud7ff",
    )
    return {"content": "".join(chance.choices(units, k=3_000)) + " end"}


_DOCUMENTS: Mapping[str, Callable[[random.Random], Document]] = {
    "pumped-code": _pumped,
    "open-json": _open_json,
    "deep-json": _deep_json,
    "markdown": _markdown,
    "markup": _markup,
    "one-line": _one_line,
    "many-chunks": _many_chunks,
    "large-metadata": _metadata,
    "characters": _characters,
}

_TOOLS = (
    "search-index",
    "search-index-file",
    "search-query",
    "search-similar",
    "search-reindex",
    "search-delete",
    "search-collection-info",
    "memory-write",
    "memory-read",
    "memory-search",
    "memory-delete",
    "notes-overview",
    "notes-paths",
    "notes-analyze",
    "notes-consolidate",
)
_FIELDS = """
    collection query limit offset mode filter sources documents source chunkId path cursor rerank
    fusion decay graph timeRange asOf expand kinds maxTokens jobId _meta _kadi __proto__
    agentId sessionId scratch tasks history include to
"""


def junk(chance: random.Random, depth: int = 0) -> Any:
    """Return a JSON value that no field expects."""
    plain: tuple[Any, ...] = (
        None,
        True,
        -1,
        10**30,
        1e308,
        "",
        " ",
        "*",
        "../../etc/passwd",
        "'; DROP TYPE Chunk; --",
        "${jndi:ldap://x}",
        "\x00",
        "a" * 5_000,
        "hostile",
    )
    draw = chance.random()
    if depth > 3 or draw < 0.7:
        return chance.choice(plain)
    if draw < 0.85:
        return [junk(chance, depth + 1) for _ in range(chance.randrange(5))]
    names = (*_FIELDS.split(), "$and", "$or", "$not", "$regex", "metadata.a", "@rid")
    return {chance.choice(names): junk(chance, depth + 1) for _ in range(chance.randrange(5))}


def _query(chance: random.Random) -> dict[str, Any]:
    filters: list[Any] = []
    nested: Any = {"source": "x"}
    for _ in range(chance.choice((30, 500))):
        nested = {"$not": nested}
    filters += [nested, {"$or": [{"metadata.a": n} for n in range(5_000)]}]
    inputs: list[dict[str, Any]] = [
        {"query": "word " * 30_000},
        {"query": "x", "sources": ["*a" * 400 + "b"] * 20},
        {"query": "x", "excludeSources": ["**/" * 300 + "b"]},
        {"query": "x", "filter": chance.choice(filters)},
        {"query": "before after since until " * 2_000},
        {"query": "not without except besides but " * 2_000, "exclude": ["x " * 500] * 16},
        {"query": "12/12/12 " * 4_000, "asOf": "9999-12-31"},
        {"query": '"' * 10_000},
        {"query": "x", "limit": 10**9},
    ]
    return {
        "collection": "*",
        "mode": chance.choice(("keyword", "hybrid")),
        **chance.choice(inputs),
    }


def _frame(chance: random.Random) -> bytes | str:
    request = {"jsonrpc": "2.0", "id": 1, "method": "kadi.session.hello", "params": junk(chance)}
    frames: list[bytes | str] = [
        chance.randbytes(chance.choice((1, 100, 70_000))),
        "",
        "{",
        "[" * 100_000,
        json.dumps(junk(chance)),
        json.dumps(request),
        json.dumps({**request, "id": junk(chance)}),
        json.dumps({**request, "method": junk(chance)}),
        json.dumps({**request, "method": "kadi.ability.request"}),
        json.dumps({**request, "method": "kadi.event.publish"}),
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": junk(chance)}),
        json.dumps([request] * 1_000),
        "\ufffe" * 1_000,
    ]
    return chance.choice(frames)


def _http(chance: random.Random) -> bytes:
    """Return the bytes of a request that breaks HTTP, or the gateway's rules."""
    head = b"POST /tools/search-index HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    typed = head + b"Content-Type: application/json\r\n"
    broken = (
        b'{"collection":"hostile","documents":[{"source":"b","title":"t","content":"\xff\xfe"}]}'
    )
    surrogate = (
        rb'{"collection":"hostile","documents":[{"source":"b","title":"t","content":"\ud800"}]}'
    )
    requests = [
        chance.randbytes(2_000),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 1_000,
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /collections HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        typed + b"Content-Length: -1\r\n\r\n{}",
        typed + b"Content-Length: 10\r\nContent-Length: 2\r\n\r\n{}",
        typed + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        typed
        + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n",
        *(
            typed + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            for body in (broken, surrogate, b"[" * 100_000, b"\x00", b"nul")
        ),
        b"GET /collections/%00%ff?limit=1&limit=2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /collections HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: 3\r\n\r\n[1]",
    ]
    return chance.choice(requests)


ATTACKS = (*(f"document {name}" for name in _DOCUMENTS), "junk", "query", "frames", "http")


class Attacker:
    """An agent that sends what nobody should send, one attack at a time."""

    def __init__(
        self, kadi: KadiCaller, http: HttpCaller, stack: StackProcess, ledger: Ledger
    ) -> None:
        self._kadi = kadi
        self._http = http
        self._stack = stack
        self._ledger = ledger

    async def run(self, step: Step) -> None:
        """Run one attack, and record what became of it."""
        after = self._ledger.issued
        began = time.monotonic()
        chance = random.Random(step.parameters["seed"])
        try:
            outcome = await self._attack(step.operation, chance)
        except Violation as violation:
            outcome = "violation"
            self._ledger.violated(step, violation)
        self._ledger.wrote(step, after, outcome, time.monotonic() - began)

    async def _attack(self, operation: str, chance: random.Random) -> str:
        kind, _, name = operation.partition(" ")
        attacks: Mapping[str, Callable[[random.Random], Awaitable[str]]] = {
            "junk": self._junk,
            "query": self._query,
            "frames": self._frames,
            "http": self._requests,
        }
        if kind == "document":
            return await self._document(_DOCUMENTS[name](chance), chance)
        return await attacks[kind](chance)

    async def _call(self, chance: random.Random, tool: str, tool_input: dict[str, Any]) -> Outcome:
        caller = chance.choice((self._kadi, self._http))
        try:
            outcome = await caller.call(tool, tool_input, CALL_SECONDS)
        except (TypeError, ValueError, RecursionError) as exc:
            # The client library refuses to send it.
            return Outcome(None, 0.0, "invalid_input", str(exc), "-")
        if not outcome.ok and outcome.code != "lost" and outcome.code not in CODES:
            raise Violation(
                f"a known code from {tool} for hostile input", f"{outcome.code!r}: {outcome.text}"
            )
        return outcome

    async def _document(self, document: Document, chance: random.Random) -> str:
        whole = {"source": f"h{chance.randrange(5)}", "title": "hostile", **document}
        options = {"collection": COLLECTION, "maxTokens": chance.choice((16, 256))}
        sent = await self._call(chance, "search-index", {**options, "documents": [whole]})
        failed = (sent.answer or {}).get("failed") or [{}]
        code = sent.code or failed[0].get("code", "ok")
        await self._call(chance, "notes-overview", {"collection": COLLECTION, "include": ["map"]})
        if chance.random() < 0.5:
            await self._call(chance, "search-delete", {"collection": COLLECTION})
        return str(code)

    async def _junk(self, chance: random.Random) -> str:
        codes = set()
        for _ in range(20):
            fields = chance.sample(_FIELDS.split(), chance.randrange(1, 5))
            tool_input = {field: junk(chance) for field in fields}
            # Only what is hostile's own may be deleted or rebuilt by a call that is valid.
            tool_input["collection"] = COLLECTION if chance.random() < 0.5 else -1
            outcome = await self._call(chance, chance.choice(_TOOLS), tool_input)
            codes.add(outcome.code or "ok")
        return " ".join(sorted(codes))

    async def _query(self, chance: random.Random) -> str:
        outcome = await self._call(chance, "search-query", _query(chance))
        return outcome.code or "ok"

    async def _frames(self, chance: random.Random) -> str:
        """Send frames to the broker, without a handshake, until it closes the connection."""
        sent = 0
        # AttributeError: websockets aborts a transport that asyncio has closed already.
        with suppress(OSError, TimeoutError, websockets.WebSocketException, AttributeError):
            host, port = await self._stack.broker()
            async with websockets.connect(
                f"ws://{host}:{port}/kadi", open_timeout=ANSWER_SECONDS, close_timeout=1
            ) as socket:
                for _ in range(20):
                    await socket.send(_frame(chance))
                    sent += 1
        return f"{sent} sent"

    async def _requests(self, chance: random.Random) -> str:
        """Send requests to the gateway; it must not answer with a server error in calm."""
        statuses, weather = set(), self._ledger.weather
        for _ in range(5):
            request, epoch = _http(chance), weather.epoch()
            status = await self._status(request)
            statuses.add(str(status))
            calm = epoch is not None and weather.epoch() == epoch
            if status is not None and status >= 500 and (calm or status == 500):
                raise Violation(
                    "no server error for a malformed request", f"{status}: {request[:200]!r}"
                )
        return " ".join(sorted(statuses))

    async def _status(self, request: bytes) -> int | None:
        """Send bytes to the gateway and return the status of the response, if there is one."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(*await self._stack.gateway())
                try:
                    writer.write(request)
                    await writer.drain()
                    words = (await reader.readline()).split()
                    return int(words[1]) if len(words) > 1 else None
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, ValueError):
            return None
