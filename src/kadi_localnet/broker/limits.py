"""Every number a broker can be tuned with."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one broker allows; sizes in bytes, times in seconds.

    Raises:
        ValueError: if a value is not positive, or two of them contradict each other.
    """

    max_message_bytes: int = 32 * 1024 * 1024
    """Largest message accepted (a larger one closes its session with 1009) or ever sent."""

    outbox_frames: int = 4096
    """Messages waiting for one session to read them."""

    outbox_bytes: int = 64 * 1024 * 1024
    """Their total size."""

    tools: int = 1000
    """Tools one session may register."""

    networks: int = 64
    """Networks one session may join."""

    subscriptions: int = 1000
    """Event patterns one session may hold."""

    outstanding: int = 1024
    """Calls one session may wait for at a time."""

    name_length: int = 256
    """Characters in the name of a tool, a network, a channel or a pattern."""

    default_timeout: float = 600.0
    """How long a call may take whose caller did not say."""

    max_timeout: float = 3600.0
    """How long a call may take at most; a caller that asks for more gets this."""

    heartbeat: float = 30.0
    """How often a session is asked to ping."""

    silence: float = 90.0
    """A session that sends nothing for this long is dropped."""

    nonce_lifetime: float = 60.0
    """A nonce is good for this long, and a connection must be authenticated within it."""

    handshake_timeout: float = 5.0
    """How long a peer may take over the opening or closing handshake before its socket is cut."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"{field.name} must be positive, not {value!r}")
        if self.outbox_bytes < self.max_message_bytes:
            raise ValueError("outbox_bytes must be at least max_message_bytes")
        if self.default_timeout > self.max_timeout:
            raise ValueError("default_timeout must not exceed max_timeout")
        if self.heartbeat >= self.silence:
            raise ValueError("heartbeat must be shorter than silence")
