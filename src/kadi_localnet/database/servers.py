"""The servers of a cluster: which of them a request is sent to."""

from __future__ import annotations

from collections.abc import Sequence

import httpx


class Servers:
    """The addresses of a server or of the nodes of a cluster, and which node is the leader.

    Args:
        urls: base URLs, the preferred one first.
        spread: whether reads are spread over all servers, as far as they are consistent there.
    """

    def __init__(self, urls: Sequence[str], *, spread: bool = False) -> None:
        if not urls:
            raise ValueError("urls: name at least one server, for example http://localhost:2480")
        self.all = [url.rstrip("/") for url in urls]
        self.leader_known = len(self.all) == 1
        """Whether the leader need not be asked for."""
        self.led = False
        """Whether one of the servers is known to be the leader."""
        self._spread = spread and len(self.all) > 1
        self._first = 0
        self._turn = 0
        self._consistent: set[str] = set()

    def leader_first(self) -> list[str]:
        """Return the servers in the order in which what needs the leader is sent."""
        return self._from(self._first)

    def in_turn(self) -> list[str]:
        """Return the servers in the order in which a read tries them: another first each time."""
        self._turn = (self._turn + 1) % len(self.all)
        return self._from(self._turn)

    def spreads(self, database: str) -> bool:
        """Return whether reads of a database are spread."""
        return self._spread and database in self._consistent

    def is_consistent(self, database: str) -> None:
        """Note that every server can answer with all that was committed before a read."""
        self._consistent.add(database)

    def answered(self, url: str) -> None:
        """Note that a server answered a request that is meant for the leader."""
        self._first = self.all.index(url)

    def elected(self, address: str) -> None:
        """Note the leader; ``address`` is ``host:port``, and ignored unless it is of a URL here."""
        self.leader_known = True
        self.led = False
        for place, url in enumerate(self.all):
            known = httpx.URL(url)
            if address in (f"{known.host}:{known.port}", known.netloc.decode()):
                self._first = place
                self.led = True

    def lost(self) -> None:
        """Note that the leader is gone, or has changed."""
        self.leader_known = len(self.all) == 1
        self.led = False

    def _from(self, place: int) -> list[str]:
        return self.all[place:] + self.all[:place]
