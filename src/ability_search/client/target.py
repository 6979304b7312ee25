"""Which broker to connect to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ability_search.configuration import Settings
from ability_search.configuration.fields import Url
from ability_search.errors import InvalidInput
from ability_search.stack.directory import RunningStack, read_running


@dataclass(frozen=True, slots=True)
class Target:
    """A broker to connect to."""

    url: str
    networks: tuple[str, ...]
    origin: str
    """Why this one."""
    stack: RunningStack | None = None
    """The running stack, if it is its broker."""
    assumed: bool = False
    """Whether it is only where a local broker would be: nothing says that there is one."""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return str(Url(self.url))


def find_target(
    settings: Settings, environ: Mapping[str, str], broker: str | None, *, given_as: str = "url"
) -> Target:
    """Which broker a client uses.

    In this order: the one given; ``BROKER_URL``; a broker ``remote`` or
    ``default`` of the files; the stack that runs over the data directory; broker ``local``.

    Raises:
        InvalidInput: if the given address is none.
    """
    networks = settings.broker.networks
    configured = settings.broker.url.get_secret_value()
    if broker is not None:
        if not broker.startswith(("ws://", "wss://")):
            raise InvalidInput(given_as, "expected an address like ws://localhost:8080/kadi")
        return Target(broker, networks, given_as)
    for name in ("BROKER_URL", "KADI_BROKER_URL"):
        if environ.get(name, "").strip():
            return Target(configured, networks, name)
    if settings.broker.name != "local":
        return Target(configured, networks, f"broker {settings.broker.name} of the configuration")
    running = read_running(settings.files.data_dir)
    if running is not None:
        origin = f"the stack of process {running.pid}"
        return Target(running.url, running.networks, origin, running)
    return Target(configured, networks, "the configured broker, as no stack runs", assumed=True)
