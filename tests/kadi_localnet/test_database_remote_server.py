"""The HTTP backend: servers that refuse, vanish or answer nonsense."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kadi_client.messages import decode
from kadi_localnet.database.backend import ATTEMPTS, DatabaseError, Statement
from kadi_localnet.database.remote_server import HttpDatabases

Answer = tuple[int, dict[str, object], dict[str, str]]
ONE_ROW: Answer = (200, {"result": [{"a": 1}], "truncated": False}, {})
CONFLICT: Answer = (
    503,
    {
        "error": "retry",
        "detail": "page 3",
        "exception": "com.arcadedb.exception.ConcurrentModificationException",
    },
    {},
)


@dataclass
class Server:
    """Speaks just enough HTTP; ``answer(path)`` decides, ``None`` hangs up."""

    answer: Callable[[str], Answer | None]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    connections: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.tasks.append(asyncio.create_task(self.handle(reader, writer)))

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks)
            await asyncio.gather(
                *(writer.wait_closed() for writer in self.writers), return_exceptions=True
            )

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._head(reader):
                path = head.split(" ")[1]
                self.paths.append(path)
                self.headers.append(head)
                answer = self.answer(path)
                if answer is None:
                    return
                status, body, headers = answer
                content = json.dumps(body).encode() if body else b""
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}"]
                lines += [f"{key}: {value}" for key, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + content)
                await writer.drain()
        finally:
            writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> str:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""
        length = 0
        for line in head.lower().splitlines():
            if line.startswith("content-length:"):
                length = int(line.partition(":")[2])
        await reader.readexactly(length)
        return head


@asynccontextmanager
async def serving(
    answer: Callable[[str], Answer | None], kind: type[Server] = Server
) -> AsyncIterator[Server]:
    server = kind(answer)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await server.close()


@asynccontextmanager
async def client(*urls: str) -> AsyncIterator[HttpDatabases]:
    backend = HttpDatabases(urls, user="root", password="secret-password")
    try:
        yield backend
    finally:
        await backend.close()


def nobody() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


SELECT = Statement("SELECT 1 AS a")
NETWORK = "com.arcadedb.network.binary"


async def test_the_next_server_takes_over_and_is_kept() -> None:
    async with serving(lambda _path: ONE_ROW) as server, client(nobody(), server.url) as backend:
        for _ in range(3):
            rows = await backend.read("d", SELECT, timeout=5)
            assert decode(rows.json) == [{"a": 1}]
        await backend.write("d", [SELECT], timeout=5)
        assert server.connections == 1
        assert all("authorization: basic" in head.lower() for head in server.headers)


def member(
    number: int, servers: list[Server], leader: list[int], headers: dict[str, str]
) -> Callable[[str], Answer | None]:
    """Return how a node of a cluster answers: it names the leader, and only the leader writes."""

    def answer(path: str) -> Answer | None:
        if path == "/api/v1/server?mode=cluster":
            address = servers[leader[0]].url.removeprefix("http://")
            return 200, {"ha": {"leaderAddress": address}}, {}
        if path.startswith("/api/v1/command") and number != leader[0]:
            return (
                400,
                {"exception": "com.arcadedb.network.binary.ServerIsNotTheLeaderException"},
                {},
            )
        return ONE_ROW[0], ONE_ROW[1], headers

    return answer


@asynccontextmanager
async def cluster(
    leader: list[int], *, headers: dict[str, str], **options: Any
) -> AsyncIterator[tuple[list[Server], HttpDatabases]]:
    servers: list[Server] = []
    async with AsyncExitStack() as stack:
        for number in range(3):
            answer = member(number, servers, leader, headers)
            servers.append(await stack.enter_async_context(serving(answer)))
        urls = [server.url for server in servers]
        backend = HttpDatabases(urls, user="root", password="secret-password", **options)
        stack.push_async_callback(backend.close)
        yield servers, backend


RAFT = {"X-ArcadeDB-Commit-Index": "7"}


def statements(server: Server) -> list[str]:
    return [path for path in server.paths if "mode=cluster" not in path]


async def test_statements_go_to_the_leader_and_follow_it() -> None:
    leader = [2]
    async with cluster(leader, headers=RAFT) as (servers, backend):
        await backend.write("d", [SELECT], timeout=5)
        await backend.read("d", SELECT, timeout=5)
        assert [len(statements(server)) for server in servers] == [0, 0, 2]
        leader[0] = 1
        await backend.write("d", [SELECT], timeout=5)
        await backend.read("d", SELECT, timeout=5)
        assert [len(statements(server)) for server in servers] == [0, 2, 3]


async def test_without_a_leader_a_write_is_repeated_until_its_deadline() -> None:
    leader = [0]
    async with cluster(leader, headers={}) as (servers, backend):
        servers[0].answer = member(0, servers, [1], {})
        servers[1].answer = member(1, servers, [0], {})
        with pytest.raises(DatabaseError, match="the cluster has no leader"):
            await backend.write("d", [SELECT], timeout=1)
        assert len(statements(servers[0])) + len(statements(servers[1])) > 2


async def test_a_leader_that_was_replaced_without_noticing_is_outvoted() -> None:
    async with cluster([1], headers={}) as (servers, backend):
        servers[0].answer = member(0, servers, [0], {})
        await backend.write("d", [SELECT], timeout=5)
        assert [len(statements(server)) for server in servers] == [0, 1, 0]


async def test_nothing_is_run_while_the_servers_name_different_leaders() -> None:
    async with cluster([1], headers={}) as (servers, backend):
        servers[0].answer = member(0, servers, [0], {})
        servers[2].answer = lambda _path: None
        with pytest.raises(DatabaseError, match="the servers name different leaders"):
            await backend.read("d", SELECT, timeout=1)
        assert [len(statements(server)) for server in servers[:2]] == [0, 0]


async def test_a_leader_that_lost_the_others_is_asked_for_again() -> None:
    leader = [0]
    async with cluster(leader, headers={}) as (servers, backend):
        answer = servers[0].answer

        def alone(path: str) -> Answer | None:
            if "mode=cluster" in path:
                return answer(path)
            leader[0] = 1
            detail = "Quorum 2 not reached because only 1 server(s) are online"
            return 500, {"exception": f"{NETWORK}.QuorumNotReachedException", "detail": detail}, {}

        servers[0].answer = alone
        await backend.write("d", [SELECT], timeout=5)
        assert [len(statements(server)) for server in servers] == [1, 1, 0]


async def test_reads_are_spread_over_servers_that_can_wait_for_what_was_committed() -> None:
    async with cluster([0], headers=RAFT, spread_reads=True) as (servers, backend):
        await backend.write("d", [SELECT], timeout=5)
        for _ in range(7):
            await backend.read("d", SELECT, timeout=5)
        assert [len(statements(server)) for server in servers] == [4, 2, 2]
        for server in servers[1:]:
            heads = [head for head in server.headers if "mode=cluster" not in head]
            assert all("X-ArcadeDB-Read-Consistency: LINEARIZABLE" in head for head in heads)


async def test_reads_are_not_spread_over_servers_that_would_answer_too_early() -> None:
    async with cluster([0], headers={}, spread_reads=True) as (servers, backend):
        for _ in range(5):
            await backend.read("d", SELECT, timeout=5)
        assert [len(statements(server)) for server in servers] == [5, 0, 0]


async def test_a_spread_read_passes_over_a_server_that_is_gone() -> None:
    async with cluster([0], headers=RAFT, spread_reads=True) as (servers, backend):
        await backend.read("d", SELECT, timeout=5)
        backend._servers.all[1] = nobody()
        for _ in range(6):
            await backend.read("d", SELECT, timeout=5)
        assert len(statements(servers[0])) + len(statements(servers[2])) == 7


async def test_no_server_at_all_is_named_without_credentials() -> None:
    url = nobody().replace("http://", "http://me:hidden@")
    async with client(url) as backend:
        with pytest.raises(DatabaseError, match="no database server answers") as caught:
            await backend.read("d", SELECT, timeout=5)
    assert "127.0.0.1" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_an_empty_list_of_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="urls: name at least one"):
        HttpDatabases([], user="root", password="x")


async def test_a_read_survives_a_broken_connection_but_a_write_is_not_sent_twice() -> None:
    async with (
        serving(lambda path: ONE_ROW if "mode=cluster" in path else None) as breaking,
        serving(lambda _path: ONE_ROW) as sound,
        client(breaking.url, sound.url) as backend,
    ):
        with pytest.raises(DatabaseError, match="whether it took effect is unknown"):
            await backend.write("d", [SELECT], timeout=5)
        assert statements(sound) == []
        assert (await backend.read("d", SELECT, timeout=5)).count == 1
        assert statements(sound) == ["/api/v1/query/d"]


async def test_a_lost_conflict_is_retried_until_it_is_won() -> None:
    answers = iter([CONFLICT, CONFLICT, ONE_ROW])
    async with serving(lambda _path: next(answers)) as server, client(server.url) as backend:
        [rows] = await backend.write("d", [SELECT], timeout=5)
        assert rows.count == 1
        assert len(server.paths) == 3
        counts = backend.counts
        assert (counts.reads, counts.writes, counts.conflicts) == (0, 1, 2)


async def test_a_conflict_that_is_never_won_says_so() -> None:
    async with serving(lambda _path: CONFLICT) as server, client(server.url) as backend:
        with pytest.raises(DatabaseError, match=r"at every attempt, nothing was written.*page 3"):
            await backend.write("d", [SELECT], timeout=20)
        assert len(server.paths) == ATTEMPTS


async def test_a_failed_commit_is_reported_and_rolled_back() -> None:
    def answer(path: str) -> Answer:
        if "/begin/" in path:
            return 204, {}, {"arcadedb-session-id": "AS-1"}
        if "/commit/" in path:
            return 500, {"error": "Cannot commit", "detail": "disk full", "exception": "a.b.C"}, {}
        return ONE_ROW

    async with serving(answer) as server, client(server.url) as backend:
        with pytest.raises(DatabaseError, match="disk full"):
            await backend.write("d", [SELECT, SELECT], timeout=5)
    steps = [path.split("/")[3] for path in server.paths]
    assert steps == ["begin", "command", "command", "commit", "rollback"]
    assert all("AS-1" in head for head in server.headers[1:])


async def test_a_silent_server_ends_at_the_deadline() -> None:
    held = asyncio.Event()

    @dataclass
    class Silent(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.set()
            await reader.read()
            writer.close()

    async with (
        asyncio.timeout(10),
        serving(lambda _path: ONE_ROW, Silent) as server,
        client(server.url) as backend,
    ):
        with pytest.raises(DatabaseError, match=r"no answer within 0\.2 s$"):
            await backend.read("d", SELECT, timeout=0.2)
        assert held.is_set()
        with pytest.raises(DatabaseError, match="whether it took effect is unknown"):
            await backend.write("d", [SELECT], timeout=0.2)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((403, {"error": "Security error", "detail": "User/Password not valid"}, {}), "password"),
        ((200, {"result": "ok"}, {}), "cannot be read"),
        ((502, {"unexpected": True}, {}), "502"),
    ],
)
async def test_other_answers_become_clear_errors(answer: Answer, expected: str) -> None:
    async with serving(lambda _path: answer) as server, client(server.url) as backend:
        with pytest.raises(DatabaseError, match=expected) as caught:
            await backend.read("d", SELECT, timeout=5)
    assert "secret-password" not in str(caught.value)


OLD: dict[str, object] = {"result": [], "version": "26.2.1 (build 02cf4731/1771257991354/main)"}


async def test_nothing_is_created_on_a_server_that_is_too_old() -> None:
    async with serving(lambda _path: (200, OLD, {})) as server, client(server.url) as backend:
        expected = f"ArcadeDB 26.2.1 found at {server.url}, 26.10.2 or later is needed"
        for refused in (backend.create("d", timeout=5), backend.check_engine()):
            with pytest.raises(DatabaseError) as error:
                await refused
            assert str(error.value) == expected
    assert set(server.paths) == {"/api/v1/databases"}


async def test_a_server_that_does_not_answer_yet_is_not_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client(nobody()) as backend:
        await backend.check_engine()
    assert "version of the database server is not known yet" in caplog.text
