"""Subscriptions, and delivery of events to the subscribers in the publisher's networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kadi_client.messages import NULL, Raw, notification
from kadi_localnet.broker.access import check_name
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Publication, Subscription, invalid
from kadi_localnet.broker.session import Refused, Session
from kadi_localnet.broker.topics import Topics


@dataclass(frozen=True, slots=True)
class Event:
    """An event, the networks that it is for, and the agent that published it."""

    channel: str
    data: Raw
    networks: tuple[str, ...]
    timestamp: float
    """Unix time in seconds."""
    source: str | None

    def frame(self, network: str, data: Raw) -> bytes:
        """Encode the delivery of ``data`` on a network."""
        return notification(
            "kadi.event.delivery",
            {
                "channel": self.channel,
                "data": data,
                "networkId": network,
                "timestamp": round(self.timestamp * 1000),
                "source": self.source,
            },
        )


class Events:
    """The subscriptions of all sessions.

    A subscription without a network applies to all networks of its session; a publication without
    a network goes to all networks of its publisher. No session receives an event twice.
    """

    __slots__ = ("_limits", "_topics", "delivered", "published")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._topics: Topics[tuple[Session, str | None]] = Topics()
        self.published = 0
        self.delivered = 0

    def subscribe(self, session: Session, params: Subscription) -> dict[str, Any]:
        """Add patterns; ignore those that exist already.

        Raises:
            Refused: adding none, if a pattern or the network is invalid, or the limit is exceeded.
        """
        patterns = self._patterns(params)
        network = self._joined(session, params.network_id)
        wanted = session.subscriptions | {(pattern, network) for pattern in patterns}
        if len(wanted) > self._limits.subscriptions:
            raise self._too_many()
        for pattern in patterns:
            self._topics.add(pattern, (session, network))
        session.subscriptions = wanted
        return {"status": "subscribed", "channels": patterns}

    def unsubscribe(self, session: Session, params: Subscription) -> dict[str, Any]:
        """Remove patterns in one network or, if none is named, in all networks.

        Raises:
            Refused: removing none, if a pattern is invalid, or there are too many.
        """
        patterns = self._patterns(params)
        gone = {
            (pattern, network)
            for pattern, network in session.subscriptions
            if pattern in patterns and params.network_id in (None, network)
        }
        self._remove(session, gone)
        return {"status": "unsubscribed", "channels": patterns}

    def remove(self, session: Session) -> None:
        """Remove all subscriptions of ``session``."""
        self._remove(session, session.subscriptions)

    def publish(self, session: Session, params: Publication, timestamp: float) -> Event:
        """Deliver an event, and return it for the other brokers; ``timestamp`` is Unix time.

        Raises:
            Refused: if the channel or network is invalid, or the delivery would be too large.
        """
        check_name("channel", params.channel, self._limits)
        network = self._joined(session, params.network_id)
        networks = session.networks if network is None else (network,)
        event = Event(params.channel, params.data, networks, timestamp, session.agent_id)
        longest = max(networks, key=len, default="")
        size = len(event.data) + len(event.frame(longest, NULL)) - len(NULL)
        if size > self._limits.max_message_bytes:
            raise invalid(
                "data",
                f"results in a delivery of {size} bytes,"
                f" more than the {self._limits.max_message_bytes} allowed",
            )
        self.deliver(event)
        self.published += 1
        return event

    def deliver(self, event: Event) -> None:
        """Deliver an event to the subscribers of this broker."""
        frames = dict.fromkeys(event.networks, b"")
        for receiver, via in self._routes(event.channel, event.networks).items():
            if not frames[via]:
                frames[via] = event.frame(via, event.data)
            receiver.send_event(frames[via])
            self.delivered += 1

    def _routes(self, channel: str, networks: tuple[str, ...]) -> dict[Session, str]:
        """Return the receivers, each with the first of ``networks`` that reaches it."""
        routes: dict[Session, str] = {}
        for receiver, subscribed in self._topics.match(channel):
            for network in networks:
                if network in receiver.networks and subscribed in (None, network):
                    earlier = routes.get(receiver, network)
                    routes[receiver] = min(network, earlier, key=networks.index)
                    break
        return routes

    def _patterns(self, params: Subscription) -> list[str]:
        channels = params.channels or []
        if len(channels) > self._limits.subscriptions:
            raise self._too_many()
        for position, pattern in enumerate(channels):
            check_name(f"channels.{position}", pattern, self._limits)
        if params.pattern is not None:
            check_name("pattern", params.pattern, self._limits)
        return params.patterns

    def _too_many(self) -> Refused:
        return Refused(
            f"too many subscriptions: {self._limits.subscriptions} are allowed per session,"
            " unsubscribe from some or use wider patterns"
        )

    def _remove(self, session: Session, gone: set[tuple[str, str | None]]) -> None:
        for pattern, network in gone:
            self._topics.remove(pattern, (session, network))
        session.subscriptions = session.subscriptions - gone

    @staticmethod
    def _joined(session: Session, network: str | None) -> str | None:
        if not network:
            return None
        if network not in session.networks:
            raise invalid(
                "networkId",
                f"{network!r} is not a network of this session"
                f" ({', '.join(session.networks)}): register with it first",
            )
        return network
