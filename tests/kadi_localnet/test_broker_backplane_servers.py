"""Brokers over a cluster of three servers that lose one of them, and over TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.networks import (
    MEETING_SECONDS,
    TOKEN,
    Node,
    connected,
    free_ports,
    met,
    nats_nodes,
)

from kadi_client import Connection, KadiError, Tool
from kadi_localnet.broker import BackplaneLost, serve_broker, server
from kadi_localnet.broker.nats_server import find_nats_server

pytestmark = pytest.mark.process

NODES = 3


async def echo(tool_input: dict[str, Any], _call: Any) -> dict[str, Any]:
    return tool_input


ECHO = Tool("echo", "", {"type": "object"}, echo)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    with nats_nodes(NODES) as found:
        yield found


async def test_brokers_go_on_when_two_of_three_servers_are_killed(nodes: list[Node]) -> None:
    urls = [node.url for node in nodes]
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                serve_broker(port=0, backplane=",".join(urls[at:] + urls[:at]))
            )
            for at in range(NODES)
        ]
        await met(brokers)
        await stack.enter_async_context(Connection(brokers[0].url, tools=[ECHO]))
        callers = [await stack.enter_async_context(Connection(broker.url)) for broker in brokers]
        for killed in (None, *nodes[:-1]):
            if killed is not None:
                killed.kill()
            async with asyncio.timeout(MEETING_SECONDS):
                for caller in callers:
                    while not await answered(caller):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            await met(brokers)


async def answered(caller: Connection) -> bool:
    with suppress(KadiError):
        return bool(await caller.invoke("echo", {"a": 1}) == {"a": 1})
    return False


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@pytest.fixture
def tls_url(certificate: tuple[Path, Path]) -> Iterator[str]:
    """The address of a NATS server that requires TLS."""
    executable = find_nats_server()
    assert executable
    (port,) = free_ports(1)
    files = ["--tlscert", str(certificate[0]), "--tlskey", str(certificate[1])]
    process = subprocess.Popen(
        [executable, *f"--addr 127.0.0.1 --port {port} --auth {TOKEN} --tls".split(), *files],
        stderr=subprocess.DEVNULL,
    )
    yield f"tls://{TOKEN}@127.0.0.1:{port}"
    process.kill()
    process.wait()


async def test_brokers_meet_over_tls(
    tls_url: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    async with (
        connected(tls_url, size=2) as network,
        Connection(network.url, tools=[ECHO]),
        Connection(network.url) as caller,
    ):
        assert await caller.invoke("echo", {"a": 1}) == {"a": 1}


async def test_a_server_with_a_certificate_of_unknown_origin_is_refused(
    tls_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_JOIN_SECONDS", 0.0)
    with pytest.raises(BackplaneLost, match="certificate verify failed|self-signed"):
        async with serve_broker(port=0, backplane=tls_url):
            pass


async def test_a_server_that_offers_no_tls_does_not_get_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_JOIN_SECONDS", 0.0)
    heard = bytearray()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        about = {"server_id": "x", "version": "2.10.0", "auth_required": True, "headers": True}
        writer.write(b"INFO " + json.dumps({**about, "max_payload": 1 << 20}).encode() + b"\r\n")
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                heard.extend(data)
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        with pytest.raises(BackplaneLost, match="the server offers no TLS"):
            async with serve_broker(port=0, backplane=f"tls://{TOKEN}@127.0.0.1:{port}"):
                pass
    assert TOKEN.encode() not in heard
