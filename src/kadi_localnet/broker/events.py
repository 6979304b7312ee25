"""Subscriptions, and delivery of events to the subscribers in the publisher's networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kadi_client.messages import NULL
from kadi_client.topics import ANY_WORDS, ONE_WORD, Topics
from kadi_localnet.broker.access import check_name, first_shared
from kadi_localnet.broker.cluster_messages import Event
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import text_bytes
from kadi_localnet.broker.params import Publication, Subscription, invalid
from kadi_localnet.broker.session import Refused, Session

_PATTERN_BYTES = 768
_WORD_BYTES = 384
"""Bytes of a subscription, and of each of its words that no other has; above the measured ones."""


class Events:
    """The subscriptions of all sessions.

    A subscription without a network applies to all networks of its session; a publication without
    a network goes to all networks of its publisher. No session receives an event twice.
    """

    def __init__(self, limits: Limits, sessions: Mapping[str, Session]) -> None:
        self._limits = limits
        self._sessions = sessions
        self._topics: Topics[tuple[Session, str | None]] = Topics()
        self.published = 0
        self.delivered = 0

    def subscribe(self, session: Session, params: Subscription) -> dict[str, Any]:
        """Add patterns; ignore those that exist already.

        Raises:
            Refused: adding none, if a pattern or the network is invalid, or a limit is exceeded.
        """
        patterns = self._patterns(params)
        network = self._joined(session, params.network_id)
        new = {(pattern, network) for pattern in patterns} - session.subscriptions
        if len(session.subscriptions) + len(new) > self._limits.subscriptions:
            raise self._too_many()
        size = session.kept("subscriptions") + _size(new)
        session.make_room("subscriptions", size, self._sessions.values())
        for pattern, _ in new:
            self._topics.add(pattern, (session, network))
        session.subscriptions |= new
        session.keep("subscriptions", size)
        return {"status": "subscribed", "channels": patterns}

    def unsubscribe(self, session: Session, params: Subscription) -> dict[str, Any]:
        """Remove patterns in one network or, if none is named, in all networks.

        Raises:
            Refused: removing none, if a pattern is invalid, or there are too many.
        """
        patterns = self._patterns(params)
        named = set(patterns)
        gone = {
            (pattern, network)
            for pattern, network in session.subscriptions
            if pattern in named and params.network_id in (None, network)
        }
        self._remove(session, gone)
        return {"status": "unsubscribed", "channels": patterns}

    def remove(self, session: Session) -> None:
        """Remove all subscriptions of ``session``."""
        self._remove(session, session.subscriptions.copy())

    def publish(self, session: Session, params: Publication, timestamp: float) -> Event:
        """Deliver an event, and return it for the other brokers; ``timestamp`` is Unix time.

        Raises:
            Refused: if the channel or network is invalid, or the delivery would be too large.
        """
        self._check_channel("channel", params.channel)
        network = self._joined(session, params.network_id)
        networks = session.networks if network is None else (network,)
        event = Event(params.channel, bytes(params.data), networks, timestamp, session.agent_id)
        longest = max(networks, key=len, default="")
        size = len(event.data) + len(event.frame(longest, bytes(NULL))) - len(NULL)
        most = min(self._limits.event_bytes, self._limits.max_message_bytes)
        if size > most:
            raise invalid(
                "data",
                f"results in a delivery of {size} bytes, more than the {most} allowed for an"
                " event: offer large data as the answer of a tool",
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
        places = {network: place for place, network in enumerate(networks)}
        routes: dict[Session, str] = {}
        for receiver, subscribed in self._topics.match(channel):
            if subscribed is None:
                network = first_shared(places, receiver.networks)
            else:
                there = subscribed in places and subscribed in receiver.networks
                network = subscribed if there else None
            if network is not None:
                before = routes.setdefault(receiver, network)
                routes[receiver] = min(before, network, key=places.__getitem__)
        return routes

    def _patterns(self, params: Subscription) -> list[str]:
        """Return the patterns from ``pattern`` and ``channels``."""
        channels = params.channels or []
        if params.pattern is None and params.channels is None:
            raise invalid("pattern", "is missing: name the channels, as in 'search.index.*'")
        if len(channels) > self._limits.subscriptions:
            raise self._too_many()
        named = [(f"channels.{place}", pattern) for place, pattern in enumerate(channels)]
        if params.pattern is not None:
            named.insert(0, ("pattern", params.pattern))
        most = self._limits.wildcards
        for member, pattern in named:
            self._check_channel(member, pattern)
            words = pattern.split(".")
            wildcards = words.count(ONE_WORD) + words.count(ANY_WORDS)
            if wildcards > most:
                raise invalid(
                    member,
                    f"has {wildcards} wildcards, more than the {most} allowed: use one '#' for"
                    " several",
                )
        return [pattern for _, pattern in named]

    def _check_channel(self, member: str, name: str) -> None:
        check_name(member, name, self._limits)
        words, most = name.count(".") + 1, self._limits.channel_words
        if words > most:
            problem = f"has {words} words between dots, more than the {most} allowed: join some"
            raise invalid(member, problem)

    def _too_many(self) -> Refused:
        return Refused(
            f"too many subscriptions: {self._limits.subscriptions} are allowed per session,"
            " unsubscribe from some or use wider patterns"
        )

    def _remove(self, session: Session, gone: set[tuple[str, str | None]]) -> None:
        for pattern, network in gone:
            self._topics.remove(pattern, (session, network))
        session.subscriptions -= gone
        session.keep("subscriptions", session.kept("subscriptions") - _size(gone))

    @staticmethod
    def _joined(session: Session, network: str | None) -> str | None:
        if not network:
            return None
        # The session's own text is kept, not another one for each subscription.
        joined = next((each for each in session.networks if each == network), None)
        if joined is None:
            raise invalid(
                "networkId",
                f"{network!r} is not a network of this session"
                f" ({', '.join(session.networks)}): register with it first",
            )
        return joined


def _size(subscriptions: Iterable[tuple[str, str | None]]) -> int:
    """Return the bytes that subscriptions take at most."""
    return sum(
        _PATTERN_BYTES + 2 * text_bytes(pattern) + _WORD_BYTES * (pattern.count(".") + 1)
        for pattern, _ in subscriptions
    )
