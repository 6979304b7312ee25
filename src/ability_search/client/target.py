"""The broker that a client connects to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ability_search.config.schema import Settings
from ability_search.config.setting_fields import Url
from ability_search.errors import InvalidInput
from ability_search.stack.data_directory import RunningStack, read_running


@dataclass(frozen=True, slots=True)
class Target:
    """A broker and how it was chosen."""

    url: str
    networks: tuple[str, ...]
    origin: str
    """Name of the setting or stack that it comes from, for messages."""
    stack: RunningStack | None = None
    """The running stack, if this is its broker."""
    assumed: bool = False
    """Whether it is only the default address, where no broker is known to run."""

    @property
    def shown(self) -> str:
        """Return the address without credentials."""
        return str(Url(self.url))


def find_target(
    settings: Settings, environ: Mapping[str, str], broker: str | None, *, given_as: str = "url"
) -> Target:
    """Return the broker that a client uses.

    In this order: the given one; ``BROKER_URL``; the broker ``remote`` or ``default`` of the
    configuration files; the stack running in the data directory; the broker ``local``.

    Raises:
        InvalidInput: if ``broker`` is not an address.
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
    return Target(configured, networks, "the configured broker; no stack is running", assumed=True)
