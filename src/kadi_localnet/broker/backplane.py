"""The exchange of messages between the brokers of one network, over NATS.

It keeps the order of the messages from one broker to another. It may lose some, which
:mod:`.cluster` notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from kadi_client.addresses import split_addresses, without_credentials
from kadi_client.errors import KadiError
from kadi_localnet.broker.cluster import EVERYONE

_SCHEMES = {"nats", "tls"}
_SUBJECT = "kadi.brokers"
_CONNECT_SECONDS = 5
_CLOSE_SECONDS = 1
_PING_SECONDS = 5
"""Interval at which the server is asked for a sign of life; two may be missing."""
_UNLIMITED = 0


class BackplaneLost(KadiError):
    """The server of the backplane cannot be reached."""


class Inbound(Protocol):
    """A broker as receiver of messages. The methods must neither wait nor raise."""

    def received(self, message: bytes) -> None:
        """Take a message for this broker or for all; its own ones to all may be among them."""

    def unreachable(self, broker: str) -> None:
        """Note that a message found no broker of this id."""

    def lost(self) -> None:
        """Note that the server is lost: nothing is sent or received any more."""


Send = Callable[[str, bytes], Awaitable[None]]
"""Sends a message to a broker, or to ``EVERYONE``; raises :class:`BackplaneLost`."""


class Backplane:
    """A NATS server that passes on messages; the brokers use the subjects below ``kadi.brokers``.

    Args:
        url: Address of the server, or those of the servers of a cluster, separated by commas, with
            a token or a user name and a password. With ``tls://`` a server that offers no TLS is
            refused before it gets them; the certificate must be valid for the name of the host.

    Raises:
        ValueError: if an address is not one of a NATS server.
    """

    def __init__(self, url: str) -> None:
        self._urls = split_addresses(url)
        if not self._urls or not {urlsplit(each).scheme for each in self._urls} <= _SCHEMES:
            raise ValueError("backplane: give an address such as nats://token@localhost:4222")
        self._shown = ", ".join(map(without_credentials, self._urls))

    @asynccontextmanager
    async def join(self, broker: str, inbound: Inbound) -> AsyncIterator[Send]:
        """Receive messages for a broker during the ``async with`` block.

        Raises:
            BackplaneLost: if the server cannot be reached.
        """
        from nats.errors import Error, NoServersError

        client = _nats_client()

        async def lost() -> None:
            inbound.lost()

        async def failed(_error: Exception) -> None:
            """Ignore it: the loss of the server, or of a message, is noticed elsewhere."""

        async def send(to: str, message: bytes) -> None:
            # The server answers at once if nobody listens to the subject.
            reply = "" if to == EVERYONE else f"{_SUBJECT}.lost.{broker}.{to}"
            try:
                await client.publish(f"{_SUBJECT}.to.{to}", message, reply=reply)
            except (Error, OSError) as exc:
                raise BackplaneLost(f"NATS is lost: {exc}") from exc

        try:
            await client.connect(
                servers=self._urls,
                name=f"broker {broker}",
                allow_reconnect=False,
                connect_timeout=_CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                closed_cb=lost,
                error_cb=failed,
            )
            await _listen(client, broker, inbound)
        except (Error, NoServersError, OSError, TimeoutError) as exc:
            await _close(client)
            raise BackplaneLost(f"cannot reach NATS at {self._shown}: {exc}") from exc
        try:
            yield send
        finally:
            await _close(client)


async def _listen(client: Any, broker: str, inbound: Inbound) -> None:
    """Receive messages for a broker from now on."""
    joined = asyncio.Event()

    async def receive(message: Any) -> None:
        inbound.received(message.data)

    async def returned(message: Any) -> None:
        other = message.subject.rpartition(".")[2]
        if other == broker:
            joined.set()
        else:
            inbound.unreachable(other)

    for to in (broker, EVERYONE):
        await client.subscribe(
            f"{_SUBJECT}.to.{to}",
            cb=receive,
            pending_msgs_limit=_UNLIMITED,
            pending_bytes_limit=_UNLIMITED,
        )
    await client.subscribe(f"{_SUBJECT}.lost.{broker}.*", cb=returned)
    # The client's flush() may overtake the subscriptions; its messages do not.
    await client.publish(f"{_SUBJECT}.lost.{broker}.{broker}", b"")
    async with asyncio.timeout(_CONNECT_SECONDS):
        await joined.wait()


def _nats_client() -> Any:
    from nats.aio.client import Client
    from nats.errors import Error

    class CautiousClient(Client):
        """The library's client speaks plain text with ``tls://`` to a server that offers no TLS."""

        def _connect_command(self) -> bytes:
            server = self._current_server
            if server and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
                raise Error("the server offers no TLS")
            return super()._connect_command()

    return CautiousClient()


async def _close(client: Any) -> None:
    # Without a limit it waits for ever for a connection whose TLS handshake failed.
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()
