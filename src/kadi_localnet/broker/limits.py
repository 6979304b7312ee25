"""The limits and timeouts of a broker."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a broker; sizes in bytes, times in seconds.

    Raises:
        ValueError: if a value is not positive, or two values contradict each other.
    """

    max_message_bytes: int = 32 * 1024 * 1024
    """Maximum size of a message; a larger one is not sent, and on receipt closes with 1009."""

    control_bytes: int = 1024 * 1024
    """Maximum size of a message without its payload, which is the input or the answer of a tool,
    or the data of an event; a registration with all its schemas has none."""

    event_bytes: int = 1024 * 1024
    """Maximum size of an event, which is held for every subscriber that does not read it."""

    unauthenticated_size: int = 64 * 1024
    """Maximum characters of a message before authentication; a longer one ends the session."""

    connections: int = 4096
    """Maximum number of connections, fewer if the process may not open as many files. Beyond it
    the oldest one that has not authenticated is cut, or one of the agent with the most."""

    outbox_frames: int = 4096
    """Maximum number of unsent messages of one session."""

    outbox_bytes: int = 64 * 1024 * 1024
    """Maximum total size of the unsent messages of one session."""

    memory_bytes: int = 512 * 1024 * 1024
    """Maximum size of what is held for all sessions: unsent messages, messages that have arrived
    in part, calls in flight, and registrations and subscriptions, which may have an eighth. From
    half of it on, events are dropped, those of the slowest readers first. If that is not enough,
    sessions with more than their share may begin no message; beyond it, or if it stays at half for
    ``patience``, the session with the most bytes is closed. Listed providers are not held up."""

    patience: float = 2.0
    """See ``memory_bytes``."""

    tools: int = 1000
    """Maximum number of tools that one session may register."""

    networks: int = 64
    """Maximum number of networks that one session may join."""

    subscriptions: int = 1000
    """Maximum number of event patterns of one session."""

    channel_words: int = 16
    """Maximum number of words, separated by dots, of a channel or a pattern."""

    wildcards: int = 3
    """Maximum number of words ``*`` and ``#`` of a pattern."""

    outstanding: int = 1024
    """Maximum number of calls that one session may have in flight."""

    name_length: int = 256
    """Maximum length in characters of the name of a tool, network, channel, pattern or agent."""

    absence: float = 30.0
    """Time for which calls wait for the tools of a provider that has left."""

    places: int = 64
    """Maximum number of such providers; listed ones are not counted."""

    waiting: int = 1024
    """Maximum number of calls that wait for one of them."""

    default_timeout: float = 600.0
    """Timeout of a call if the caller sets none."""

    max_timeout: float = 3600.0
    """Maximum timeout of a call; longer ones are reduced to this."""

    heartbeat: float = 30.0
    """Heartbeat interval requested of sessions."""

    silence: float = 90.0
    """A session that sends nothing for this long is closed."""

    nonce_lifetime: float = 60.0
    """Lifetime of a nonce; a connection must also authenticate within this time."""

    handshake_timeout: float = 5.0
    """Timeout for the opening and closing handshake; the socket is then aborted."""

    beat: float = 1.0
    """Interval of the messages by which brokers of one network tell that they are there."""

    lease: float = 10.0
    """A broker of the same network that is silent for this long is taken for lost."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"{field.name} must be positive, not {value!r}")
        if self.outbox_bytes < self.max_message_bytes:
            raise ValueError("outbox_bytes must be at least max_message_bytes")
        if self.memory_bytes < 4 * self.max_message_bytes:
            raise ValueError("memory_bytes must be at least four times max_message_bytes")
        if self.default_timeout > self.max_timeout:
            raise ValueError("default_timeout must not exceed max_timeout")
        if self.heartbeat >= self.silence:
            raise ValueError("heartbeat must be shorter than silence")
        if self.beat >= self.lease:
            raise ValueError("beat must be shorter than lease")
