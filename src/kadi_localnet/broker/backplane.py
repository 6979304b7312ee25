"""The exchange of messages between the brokers of one network.

Both implementations keep the order of the messages from one broker to another. They may lose some,
which :mod:`.cluster` notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from kadi_client.addresses import split_addresses, without_credentials
from kadi_client.errors import KadiError
from kadi_localnet.broker.cluster import EVERYONE

NATS_SCHEMES = ("nats", "tls")
RABBITMQ_SCHEMES = ("amqp", "amqps")
SCHEMES = (*NATS_SCHEMES, *RABBITMQ_SCHEMES)

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
        """Note that a message found no broker of this id; RabbitMQ does not tell."""

    def lost(self) -> None:
        """Note that the server is lost: nothing is sent or received any more."""


Send = Callable[[str, bytes], Awaitable[None]]
"""Sends a message to a broker, or to ``EVERYONE``; raises :class:`BackplaneLost`."""


class Backplane(Protocol):
    """A server that passes on messages."""

    def join(self, broker: str, inbound: Inbound) -> AbstractAsyncContextManager[Send]:
        """Receive messages for a broker during the ``async with`` block.

        Raises:
            BackplaneLost: if the server cannot be reached.
        """


class Nats:
    """NATS; the brokers use the subjects below ``kadi.brokers``.

    Args:
        urls: Addresses of the server or of the servers of a cluster, with a token or a user name
            and a password. With ``tls://`` a server that offers no TLS is refused before it gets
            them; the certificate must be valid for the name of the host.
    """

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    @asynccontextmanager
    async def join(self, broker: str, inbound: Inbound) -> AsyncIterator[Send]:
        """See :class:`Backplane`."""
        from nats.aio.msg import Msg
        from nats.errors import Error, NoServersError

        client = _nats_client()

        async def lost() -> None:
            inbound.lost()

        async def failed(_error: Exception) -> None:
            """Ignore it: the loss of the server, or of a message, is noticed elsewhere."""

        async def receive(message: Msg) -> None:
            inbound.received(message.data)

        joined = asyncio.Event()

        async def returned(message: Msg) -> None:
            other = message.subject.rpartition(".")[2]
            if other == broker:
                joined.set()
            else:
                inbound.unreachable(other)

        async def send(to: str, message: bytes) -> None:
            # The server answers at once if nobody listens to the subject.
            reply = "" if to == EVERYONE else f"{_SUBJECT}.lost.{broker}.{to}"
            try:
                await client.publish(f"{_SUBJECT}.to.{to}", message, reply=reply)
            except (Error, OSError) as exc:
                raise BackplaneLost(f"NATS is lost: {exc}") from exc

        try:
            await client.connect(
                servers=list(self._urls),
                name=f"broker {broker}",
                allow_reconnect=False,
                connect_timeout=_CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                closed_cb=lost,
                error_cb=failed,
            )
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
        except (Error, NoServersError, OSError, TimeoutError) as exc:
            await _close(client)
            raise BackplaneLost(f"cannot reach NATS at {_shown(self._urls)}: {exc}") from exc
        try:
            yield send
        finally:
            await _close(client)


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


class RabbitMQ:
    """RabbitMQ, or another broker that speaks AMQP 0-9-1; the exchange is ``kadi.brokers``.

    Args:
        urls: Addresses of the server or of the nodes of a cluster, which are tried in this order,
            with user name, password and virtual host; ``amqps://`` for TLS.
    """

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    @asynccontextmanager
    async def join(self, broker: str, inbound: Inbound) -> AsyncIterator[Send]:
        """See :class:`Backplane`."""
        from aio_pika import ExchangeType, Message
        from aio_pika.abc import AbstractIncomingMessage
        from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

        def lost(*_: Any) -> None:
            inbound.lost()

        async def receive(message: AbstractIncomingMessage) -> None:
            inbound.received(message.body)

        async def send(to: str, message: bytes) -> None:
            try:
                await exchange.publish(Message(message), to, mandatory=False)
            except (AMQPError, ChannelInvalidStateError, OSError) as exc:
                raise BackplaneLost(f"RabbitMQ is lost: {exc}") from exc

        connection = await self._connect()
        try:
            try:
                channel = await connection.channel(publisher_confirms=False)
                connection.close_callbacks.add(lost)
                channel.close_callbacks.add(lost)
                exchange = await channel.declare_exchange(
                    _SUBJECT, ExchangeType.DIRECT, auto_delete=True
                )
                queue = await channel.declare_queue(exclusive=True, auto_delete=True)
                for to in (broker, EVERYONE):
                    await queue.bind(exchange, to)
                await queue.consume(receive, no_ack=True)
            except (AMQPError, ChannelInvalidStateError, OSError) as exc:
                raise BackplaneLost(f"RabbitMQ is lost: {exc}") from exc
            yield send
        finally:
            await connection.close()

    async def _connect(self) -> Any:
        from aio_pika import connect
        from aio_pika.exceptions import AMQPError

        failure: Exception | None = None
        for url in self._urls:
            try:
                return await connect(url, timeout=_CONNECT_SECONDS, heartbeat=2 * _PING_SECONDS)
            except (AMQPError, OSError, TimeoutError) as exc:
                failure = exc
        text = f"cannot reach RabbitMQ at {_shown(self._urls)}: {failure}"
        raise BackplaneLost(text) from failure


def backplane_at(url: str) -> Backplane:
    """Return the backplane at an address, or at several that are separated by commas.

    Raises:
        ValueError: if the scheme is none of ``SCHEMES``, or differs between the addresses.
    """
    urls = split_addresses(url)
    schemes = {urlsplit(each).scheme for each in urls}
    if urls and schemes <= set(NATS_SCHEMES):
        return Nats(urls)
    if urls and schemes <= set(RABBITMQ_SCHEMES):
        return RabbitMQ(urls)
    raise ValueError(
        "backplane: give an address such as nats://token@localhost:4222 or"
        " amqp://user:password@localhost:5672"
    )


def _shown(urls: list[str]) -> str:
    return ", ".join(map(without_credentials, urls))
