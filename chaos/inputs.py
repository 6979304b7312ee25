"""Hostile input in great number: batches over one connection, each answer compared.

A hostile input is one that its receiver has to refuse, to answer with an error, or to survive.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import websockets

from ability_search.errors import SearchError
from ability_search.extensions.artifacts.artifact_format import MANIFEST, ChunksManifest
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest
from chaos.attacks import CALL_SECONDS, COLLECTION, junk
from chaos.callers import CODES, PASSING, KadiCaller
from chaos.expectations import Violation
from chaos.ledger import Ledger
from chaos.proxy import Proxy
from chaos.stack_process import StackProcess, StartFailed
from chaos.steps import Step
from kadi_client import Identity

BATCH_SECONDS = 30.0
"""How long the answers to a batch may take."""
PAUSE_SECONDS = 0.5
"""Pause after a batch that could not be sent, because its receiver is down."""
BATCHES = {
    "frames": 6_000,
    "messages": 1_500,
    "http": 200,
    "mcp-lines": 2_000,
    "documents": 20,
    "artifacts": 20,
}
"""Number of inputs of a batch by kind."""

Answer = dict[str, Any]
Check = Callable[[Answer], bool]

_RESERVED = ("search-query", "search-index", "arcade-query", "arcade-x", "create-embedding")
_METHODS = (
    "kadi.agent.register",
    "kadi.ability.request",
    "kadi.ability.cancel",
    "kadi.ability.list",
    "kadi.event.subscribe",
    "kadi.event.publish",
    "kadi.session.resume",
)
_PIPELINED = 20
_ADDRESSES = 250
"""Loopback addresses that requests come from, so that the rate limit is not all they meet."""


def is_error(answer: Answer) -> bool:
    """Return whether an answer is a JSON-RPC error with a text."""
    error = answer.get("error")
    return isinstance(error, dict) and bool(error.get("message")) and "result" not in answer


def malformed(chance: random.Random, valid: str) -> str:
    """Return text that is not a JSON object, made from one that is valid."""
    draw = chance.randrange(5)
    if draw == 0:
        return valid[: chance.randrange(1, len(valid))]
    if draw == 1:
        place = chance.randrange(1, len(valid))
        return (
            valid[:place] + chance.choice(("\x00", "\x1f", "}{", "]", '""')) + valid[place:] + "]"
        )
    if draw == 2:
        return chance.choice(("[" * 2_000, "nul", "-", "\ufffe", "1e", "'a'", "{'a': 1}", "//"))
    if draw == 3:
        return json.dumps([json.loads(valid)])
    return json.dumps(chance.choice((None, True, 1, "text", [], -1e300)))


def _request(id_: int, method: str, params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def frames(chance: random.Random, size: int) -> tuple[list[str], dict[int, Check], int]:
    """Return messages to a broker before authentication.

    Returns:
        The messages, what the answer to each id must be, and the number of answers without an id.
    """
    sent, checks, nameless = [], dict[int, Check](), 0
    for id_ in range(1, size + 1):
        whole = _request(id_, chance.choice(_METHODS), junk(chance))
        if chance.random() < 0.6:
            sent.append(malformed(chance, whole))
            nameless += 1
        else:
            sent.append(whole)
            checks[id_] = is_error
    return sent, checks, nameless


def _empty_listing(answer: Answer) -> bool:
    return not (answer.get("result") or {"tools": [1]})["tools"]


def _unknown(answer: Answer) -> bool:
    return is_error(answer) or answer.get("result", {}).get("status") == "unknown"


def message(chance: random.Random, id_: int, private: str) -> tuple[str, Check | None]:
    """Return a message of an authenticated agent, and what its answer must be.

    ``private`` is the network of the components, which this agent may not join.
    """
    value = junk(chance)
    tool = chance.choice(("arcade-query", "arcade-command", "arcade-batch", "create-embedding"))
    wrong = chance.choice((5, True, [1], {"a": 1}))
    made: tuple[tuple[str, Any, Check | None], ...] = (
        ("kadi.agent.register", {"tools": [{"name": chance.choice(_RESERVED)}]}, is_error),
        ("kadi.agent.register", {"tools": wrong}, is_error),
        ("kadi.ability.request", {"toolName": tool, "toolInput": {"a": value}}, is_error),
        (
            "kadi.ability.request",
            {"toolName": tool, "toolInput": {"_kadi": {"network": private}}, "directReply": True},
            is_error,
        ),
        ("kadi.ability.request", {"toolName": wrong}, is_error),
        (
            "kadi.ability.request",
            {"toolName": "search-query", "toolInput": chance.choice((1, "x", [value]))},
            is_error,
        ),
        ("kadi.ability.request", {"toolName": "search-query", "timeout": -1}, is_error),
        ("kadi.ability.cancel", {"requestId": f"{chance.getrandbits(48):012x}-{id_}"}, _unknown),
        ("kadi.ability.cancel", {"requestId": wrong}, _unknown),
        ("kadi.ability.list", {"networks": [private]}, _empty_listing),
        ("kadi.event.subscribe", {"pattern": "*", "networkId": private}, is_error),
        ("kadi.event.publish", {"channel": "a", "data": value, "networkId": private}, is_error),
        ("kadi.event.publish", {"channel": wrong}, is_error),
        ("kadi.session.hello", {"networks": [private]}, is_error),
        ("kadi.session.authenticate", value, is_error),
        (f"kadi.{chance.getrandbits(32):x}", value, is_error),
        ("", {"status": "made up"}, None),
    )
    method, params, check = chance.choice(made)
    if check is None:
        # An answer to a call of somebody else.
        guess = f"{chance.getrandbits(48):012x}-{chance.randrange(1_000)}"
        return json.dumps({"jsonrpc": "2.0", "id": guess, "result": params}), None
    return _request(id_, method, params), check


_MCP_METHODS = ("tools/call", "prompts/get", "resources/read", "tools/list2", "sampling/x")


def mcp_lines(chance: random.Random, size: int) -> tuple[list[str], dict[int, Check], int]:
    """Return lines to an MCP server; the result is as of :func:`frames`."""

    def refused(answer: Answer) -> bool:
        return is_error(answer) or (answer.get("result") or {}).get("isError") is True

    sent, checks, nameless = [], dict[int, Check](), 0
    for id_ in range(1, size + 1):
        method = chance.choice(_MCP_METHODS)
        params = {"name": f"no-{id_}", "uri": "search://..", "arguments": {"a": junk(chance)}}
        whole = _request(id_, method, params)
        if chance.random() < 0.7:
            # A line break would make two lines of it.
            sent.append(malformed(chance, whole).replace("\n", " "))
            nameless += 1
        else:
            sent.append(whole)
            checks[id_] = refused
    return sent, checks, nameless


def http_request(chance: random.Random) -> bytes:
    """Return a request that HTTP allows and the gateway must refuse with a status of 4xx."""
    whole = json.dumps({"collection": COLLECTION, "query": "x", "limit": 3})
    typed = "application/json"
    method, path, host, kind, body = chance.choice(
        (
            ("POST", "/tools/search-query", "127.0.0.1", typed, malformed(chance, whole)),
            ("POST", "/search", "127.0.0.1", typed, malformed(chance, whole)),
            ("POST", "/mcp", "127.0.0.1", typed, malformed(chance, whole)),
            ("POST", "/tools/search-query", "127.0.0.1", "text/plain", whole),
            ("POST", "/tools/search-query", "evil.example", typed, whole),
            ("POST", f"/tools/{chance.getrandbits(32):x}", "127.0.0.1", typed, whole),
            ("POST", "/tools/search-query", "127.0.0.1", typed, '{"query": 5}'),
            ("POST", "/ingest", "127.0.0.1", typed, '{"content": {"a": [1]}}'),
            ("DELETE", "/tools/search-query", "127.0.0.1", typed, ""),
            ("PATCH", "/collections", "127.0.0.1", typed, whole),
            ("GET", f"/{chance.getrandbits(32):x}", "127.0.0.1", typed, ""),
            ("GET", "/%2e%2e/%2e%2e/etc/passwd", "127.0.0.1", typed, ""),
            ("GET", f"/collections/no-{chance.getrandbits(16):x}?limit=-1", "127.0.0.1", typed, ""),
        )
    )
    encoded = body.encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded


def small_document(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a short document that is damaged, blank, or of another format than it says."""
    name, language = chance.choice(
        (("json", ""), ("html", ""), ("markdown", ""), ("code", "python"), ("text", ""))
    )
    units = ("<p", "{", "[", "```", "\x00", "\ud7ff", "&#0;", "| a ", "\u202e", '"', "def ", "#")
    content = "".join(chance.choices(units, k=chance.randrange(40)))
    document: dict[str, Any] = {
        "source": f"small-{number % 20}-{chance.choice(units)}",
        "title": chance.choice(("hostile", "\x00", "\u202e", " ")),
        "content": content if chance.random() < 0.5 else " \n\t",
        "format": name,
    }
    if language:
        document["language"] = language
    if chance.random() < 0.3:
        document["metadata"] = {"value": junk(chance)}
    return document


class Inputs:
    """Sends batches of hostile input, one at a time.

    Args:
        kadi: A connection for calls of tools.
        broker: A proxy before the broker, whose address lasts.
        stack: The stack.
        ledger: Receives what happens.
    """

    def __init__(
        self, kadi: KadiCaller, broker: Proxy, stack: StackProcess, ledger: Ledger
    ) -> None:
        self._kadi = kadi
        self._broker = broker
        self._stack = stack
        self._ledger = ledger
        self._mcp: asyncio.subprocess.Process | None = None
        self._artifact: Path | None = None
        self._kinds: Mapping[str, Callable[[random.Random, int], Awaitable[Counter[str]]]] = {
            "frames": self._frames,
            "messages": self._messages,
            "http": self._http,
            "mcp-lines": self._mcp_lines,
            "documents": self._documents,
            "artifacts": self._artifacts,
        }

    async def run(self, step: Step) -> None:
        """Send one batch and record the answers."""
        after, began = self._ledger.issued, time.monotonic()
        kind, weather = step.operation, self._ledger.weather
        epoch = weather.epoch()
        answers: Counter[str] = Counter()
        outcome = "ok"
        try:
            chance = random.Random(step.parameters["seed"])
            answers = await self._kinds[kind](chance, BATCHES[kind])
            if answers["unanswered"] and epoch is not None and weather.epoch() == epoch:
                raise Violation(f"an answer to each of the {kind}", str(dict(answers)))
        except Violation as violation:
            outcome = "violation"
            self._ledger.violated(step, violation)
        self._ledger.sent(kind, answers)
        if not answers:
            await asyncio.sleep(PAUSE_SECONDS)
        self._ledger.wrote(step, after, outcome, time.monotonic() - began)

    async def prepare(self) -> None:
        """Export what is damaged later, and start the MCP server, while nothing is broken."""
        self._artifact = await self._exported()
        await self._mcp_process()

    async def close(self) -> None:
        """End the processes that it started."""
        if self._mcp is not None and self._mcp.returncode is None:
            self._mcp.kill()
            await self._mcp.wait()

    # To the broker

    async def _frames(self, chance: random.Random, size: int) -> Counter[str]:
        """Send messages without a handshake; at the end, a forged signature must be refused."""
        answers: Counter[str] = Counter()
        with suppress(OSError, TimeoutError, websockets.WebSocketException):
            async with self._socket() as socket:
                sent, checks, nameless = frames(chance, size)
                other = Identity.generate()
                forged = {"publicKey": other.public_key, "signature": other.sign("x")}
                sent.append(_request(size + 1, "kadi.session.authenticate", forged))
                checks[size + 1] = is_error
                await _converse(socket, sent, checks, nameless, answers)
        return answers

    async def _messages(self, chance: random.Random, size: int) -> Counter[str]:
        """Send messages as an agent that proved who it is and is entitled to nothing."""
        networks = self._stack.state().get("networks", ())
        private = next((each for each in networks if each not in self._stack.networks), "none")
        answers: Counter[str] = Counter()
        with suppress(OSError, TimeoutError, websockets.WebSocketException):
            async with self._socket() as socket:
                await _authenticate(socket)
                sent, checks = [], dict[int, Check]()
                for id_ in range(1, size + 1):
                    text, check = message(chance, id_, private)
                    sent.append(text)
                    if check is not None:
                        checks[id_] = check
                sent.append(_request(size + 1, "kadi.session.ping", {}))
                checks[size + 1] = lambda answer: answer.get("result") == "pong"
                await _converse(socket, sent, checks, 0, answers)
                answers["no answer is due"] += len(sent) - len(checks)
        return answers

    @asynccontextmanager
    async def _socket(self) -> AsyncIterator[websockets.ClientConnection]:
        host, port = await self._stack.broker()
        async with websockets.connect(
            f"ws://{host}:{port}/kadi",
            open_timeout=BATCH_SECONDS,
            close_timeout=1,
            compression=None,
            max_size=None,
        ) as socket:
            yield socket

    # To the gateway

    async def _http(self, chance: random.Random, size: int) -> Counter[str]:
        """Send requests over one connection, several before the first response is read."""
        answers: Counter[str] = Counter()
        weather = self._ledger.weather
        local = f"127.0.0.{2 + chance.randrange(_ADDRESSES)}"
        left, due = size, 0
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(BATCH_SECONDS):
                host, port = await self._stack.gateway()
                reader, writer = await asyncio.open_connection(host, port, local_addr=(local, 0))
                try:
                    while left:
                        requests = [http_request(chance) for _ in range(min(left, _PIPELINED))]
                        epoch, due = weather.epoch(), len(requests)
                        writer.write(b"".join(requests))
                        await writer.drain()
                        for request in requests:
                            status, body = await _response(reader)
                            calm = epoch is not None and weather.epoch() == epoch
                            _check_status(request, status, body, calm=calm)
                            answers[str(status) if status < 500 else "unavailable"] += 1
                            left -= 1
                            due -= 1
                finally:
                    writer.transport.abort()
        answers["unanswered"] += due
        return answers

    # To the MCP server

    async def _mcp_lines(self, chance: random.Random, size: int) -> Counter[str]:
        """Send lines to `ability-search mcp`, which must answer each and go on."""
        process = await self._mcp_process()
        if process is None:
            return Counter()
        assert process.stdin is not None
        assert process.stdout is not None
        sent, checks, nameless = mcp_lines(chance, size)
        answers: Counter[str] = Counter()
        expected = len(checks) + nameless
        sending = asyncio.create_task(_write_lines(process.stdin, sent))
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                while answers.total() < expected and (line := await process.stdout.readline()):
                    _compare(json.loads(line), checks, answers)
        except TimeoutError:
            # What it still writes would be taken for answers to the next batch.
            await self.close()
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        if process.returncode is not None:
            self._mcp = None
        answers["unanswered"] += expected - answers.total()
        return answers

    async def _mcp_process(self) -> asyncio.subprocess.Process | None:
        """Return the MCP server, started and initialized; ``None`` if it does not answer."""
        if self._mcp is not None and self._mcp.returncode is None:
            return self._mcp
        url = f"ws://127.0.0.1:{self._broker.port}/kadi"
        process = self._mcp = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", "mcp", "--broker", url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,
            cwd=self._stack.work,
            env=self._stack.environ | {"SEARCH_DATA_DIR": str(self._stack.home / "mcp")},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "chaos", "version": "1"},
        }
        started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        process.stdin.write(_request(0, "initialize", hello).encode() + b"\n")
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                answer = await process.stdout.readline()
        except TimeoutError:
            answer = b""
        if b'"serverInfo"' not in answer:
            await self.close()
            return None
        process.stdin.write(json.dumps(started).encode() + b"\n")
        return process

    # Documents and artifacts

    async def _documents(self, chance: random.Random, size: int) -> Counter[str]:
        """Index documents in one call: each is stored, or fails with a code of its own."""
        documents = [small_document(chance, number) for number in range(size)]
        sent = {"collection": COLLECTION, "documents": documents}
        outcome = await self._kadi.call("search-index", sent, 4 * CALL_SECONDS)
        if outcome.answer is None:
            if outcome.code != "lost" and outcome.code not in CODES:
                raise Violation("a known code for hostile documents", str(outcome))
            if outcome.code == "lost":
                return Counter(unanswered=size)
            known = outcome.refused and outcome.code not in PASSING
            return Counter({outcome.code if known else "unavailable": size})
        answers = Counter(str(each["code"]) for each in outcome.answer["failed"])
        if not answers.keys() <= CODES or any(
            not each["error"] for each in outcome.answer["failed"]
        ):
            raise Violation("a known code and a text for each document", str(answers))
        answers["stored"] = size - answers.total()
        return answers

    async def _artifacts(self, chance: random.Random, size: int) -> Counter[str]:
        """Check damaged and forged copies of an export, as `import --check` does."""
        assert self._artifact is not None
        return await asyncio.to_thread(check_copies, self._artifact, chance, size)

    async def _exported(self) -> Path:
        name, directory = f"{COLLECTION}-artifact", self._stack.home / "exports" / COLLECTION
        documents = [
            {"source": f"a{n}", "title": f"Artifact {n}", "content": f"{'Made up. ' * 40}{n}"}
            for n in range(3)
        ]
        sent = {"collection": name, "documents": documents}
        outcome = await self._kadi.call("search-index", sent, 4 * CALL_SECONDS)
        exported = await self._stack.run("export", name, str(directory))
        if exported.code:
            raise StartFailed(f"nothing can be exported: {outcome.text} {exported.err}")
        return directory


def check_copies(directory: Path, chance: random.Random, size: int) -> Counter[str]:
    """Check ``size`` damaged copies of an artifact.

    Raises:
        Violation: if one is accepted that has other contents, or fails otherwise than refused.
    """
    answers: Counter[str] = Counter()
    copy = directory.with_name(f"{directory.name}-copy")
    for _ in range(size):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        about = _spoil(copy, chance)
        try:
            manifest = read_manifest(copy)
            if isinstance(manifest, ChunksManifest):
                Artifact(copy, manifest).check()
        except SearchError as exc:
            answers[exc.code] += 1
        except Exception as exc:
            raise Violation("a damaged artifact to be refused", f"{about}: {exc!r}") from exc
        else:
            if not about.startswith(MANIFEST):
                raise Violation(
                    "a damaged artifact to be refused", f"{about}: accepted", kind="let in"
                )
            answers["harmless"] += 1
    return answers


def _spoil(directory: Path, chance: random.Random) -> str:
    """Change one file of an artifact; return which and how."""
    path = chance.choice([each for each in sorted(directory.iterdir()) if each.stat().st_size])
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    way = chance.choice(("cut", "changed", "removed", "grown"))
    if way == "cut":
        del content[place:]
    elif way == "changed":
        content[place] ^= 1 << chance.randrange(8)
    elif way == "grown":
        content += content[place:] or b"{}"
    path.write_bytes(content)
    if way == "removed":
        path.unlink()
    return f"{path.name} {way} at {place}"


def _check_status(request: bytes, status: int, body: bytes, *, calm: bool) -> None:
    """Compare a response with what a hostile request must get.

    Raises:
        Violation: if it was accepted, or is a server error while nothing is broken.
    """
    if 400 <= status < 500:
        if not body and status != 405:
            raise Violation("a text in a refusal", f"{status}: {request[:300]!r}")
        return
    if status < 400 or status == 500 or calm:
        raise Violation(
            "a hostile request to be refused", f"{status}: {request[:300]!r}", kind="let in"
        )


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one response with a length, and return its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    return int(status_line.split()[1]), await reader.readexactly(length)


async def _authenticate(socket: websockets.ClientConnection) -> None:
    identity = Identity.generate()
    await socket.send(_request(1, "kadi.session.hello", {"networks": ["global"]}))
    nonce = json.loads(await socket.recv())["result"]["nonce"]
    proof = {
        "publicKey": identity.public_key,
        "signature": identity.sign(nonce),
        "nonce": nonce,
    }
    await socket.send(_request(2, "kadi.session.authenticate", proof))
    answer = json.loads(await socket.recv())
    if "agentId" not in answer.get("result", {}):
        raise Violation("a valid signature to be accepted", str(answer))


async def _converse(
    socket: websockets.ClientConnection,
    sent: Sequence[str],
    checks: dict[int, Check],
    nameless: int,
    answers: Counter[str],
) -> None:
    """Send messages and compare the answers, until each that is due has arrived."""

    async def send() -> None:
        with suppress(websockets.ConnectionClosed):
            for text in sent:
                await socket.send(text)

    expected = len(checks) + nameless
    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(BATCH_SECONDS):
            while answers.total() < expected:
                _compare(json.loads(await socket.recv()), checks, answers)
    finally:
        answers["unanswered"] += expected - answers.total()
        sending.cancel()
        await asyncio.wait([sending])


def _compare(answer: Answer, checks: Mapping[int, Check], answers: Counter[str]) -> None:
    """Compare one answer with what is due, and count it.

    Raises:
        Violation: if it is not what a hostile message must get.
    """
    id_ = answer.get("id")
    if id_ is None and "method" in answer:
        return
    check = is_error if id_ is None else checks.get(id_)
    if check is None or not check(answer):
        raise Violation("a hostile message to be refused", json.dumps(answer)[:500], kind="let in")
    error = answer.get("error")
    answers[str(error["code"]) if error else "nothing found"] += 1


async def _write_lines(pipe: asyncio.StreamWriter, lines: Iterable[str]) -> None:
    with suppress(OSError):
        for line in lines:
            pipe.write(line.encode("utf-8", "surrogatepass") + b"\n")
            await pipe.drain()
