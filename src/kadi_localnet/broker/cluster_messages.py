"""Messages between the brokers of one network, as MessagePack arrays."""

from __future__ import annotations

import msgspec

from kadi_client.messages import notification


class _Message(msgspec.Struct, array_like=True, tag=True):
    """A message between brokers; ids of calls are those sent to the provider."""


class PeerHello(_Message):
    """To all: a broker has joined; it was ``formerly`` known under another id, or under none."""

    sender: str
    formerly: str


class Beat(_Message):
    """To all, regularly: the sender is there and knows these brokers."""

    sender: str
    known: list[str]


class Leave(_Message):
    """To all: a broker stops."""

    sender: str


class Probe(_Message):
    """To a known broker, regularly: the calls in progress of each session that has some."""

    sender: str
    loads: dict[str, int]


class Stranger(_Message):
    """To a broker that is not known (any more): it must join again."""


class Piece(_Message):
    """Part of a numbered message."""

    sender: str
    number: int
    last: bool
    body: bytes


class Offer(_Message):
    """A session and the parameters of its registration; ``networks`` are those it has joined."""

    session: str
    agent_id: str
    display_name: str | None
    networks: tuple[str, ...]
    params: bytes


class Welcome(_Message):
    """The first numbered message: all sessions that offer tools."""

    offers: list[Offer]


class Announcement(_Message):
    """A registration; to be confirmed."""

    number: int
    offer: Offer


class Applied(_Message):
    """An announcement is applied."""

    number: int


class Gone(_Message):
    """A session has ended, without an answer to some calls of the receiver's callers."""

    session: str
    lost: list[str]


class Start(_Message):
    """A call for a session of the receiver."""

    session: str
    call: str
    tool: str
    frame: bytes


class Return(_Message):
    """A call for a session that has ended before it came; ``frame`` is that of its start."""

    session: str
    call: str
    frame: bytes


class PeerCancel(_Message):
    """A call is cancelled or has timed out."""

    call: str
    why: dict[str, str]


class Answer(_Message):
    """The frame with which a session of the sender answered a call, and its calls in progress."""

    session: str
    frame: bytes
    load: int


class Event(_Message):
    """An event, the networks that it is for, and the agent that published it."""

    channel: str
    data: bytes
    """JSON."""
    networks: tuple[str, ...]
    timestamp: float
    """Unix time in seconds."""
    source: str | None

    def frame(self, network: str, data: bytes) -> bytes:
        """Encode the delivery of ``data`` on a network."""
        return notification(
            "kadi.event.delivery",
            {
                "channel": self.channel,
                "data": msgspec.Raw(data),
                "networkId": network,
                "timestamp": round(self.timestamp * 1000),
                "source": self.source,
            },
        )


Control = PeerHello | Beat | Leave | Probe | Stranger | Piece
Body = Welcome | Announcement | Applied | Gone | Start | Return | PeerCancel | Answer | Event

encode = msgspec.msgpack.Encoder().encode
controls: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)
bodies: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)
