"""State that sessions have until they end or change it: registrations, subscriptions, networks."""

from __future__ import annotations

from collections.abc import Mapping

from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.session import CloseCode, Kept, Refused, Session


class Standing:
    """The memory for what is kept, an eighth of all.

    The session with the most gives way to smaller ones, unless its agent is listed as a provider.
    """

    def __init__(self, limits: Limits, sessions: Mapping[str, Session]) -> None:
        self._limits = limits
        self._sessions = sessions

    def make_room(self, session: Session, what: Kept, size: int) -> None:
        """Allow ``size`` bytes as ``what`` of a session, instead of those of before.

        Raises:
            Refused: if the session itself would have the most.
        """
        grown = size - session.kept(what)
        if grown <= 0 or session.listed:
            return
        others = [each for each in self._sessions.values() if each is not session]
        mine = session.standing + grown
        if mine + sum(each.standing for each in others) <= self._limits.memory_bytes // 8:
            return
        unlisted = (each for each in others if not each.listed and each.closing is None)
        largest = max(unlisted, key=lambda each: each.standing, default=session)
        if largest is session or largest.standing <= mine:
            raise Refused(
                f"the broker's memory for {what} is full, and most of it would be held for this"
                " session: register less, unsubscribe from some, or use wider patterns"
            )
        largest.close(
            CloseCode.TRY_AGAIN_LATER,
            f"memory for {what} is full, and most of it is held for this session",
        )
