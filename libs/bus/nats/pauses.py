"""How long a connection waits before each try, so that a fleet comes back without a crowd.

Sign-in returns first: a client that asks before has to wait for the server's whole timeout.
"""

import random
from typing import Final

from libs.contracts.identities import Identity, Writer
from libs.runtime.clock import Backoff

SIGN_IN_RETURNS: Final = 2.0
"""Seconds in which sign-in is connected again, after a server is back at once."""
SIGN_IN_PAUSE: Final = 1.0
"""Seconds between two tries of sign-in at most; everyone waits for it, and it is few processes."""


class Pauses:
    def __init__(
        self, source: random.Random, *, identity: Identity, has_token: bool, spread: float
    ) -> None:
        """`spread`: seconds over which a fleet spreads its connects."""
        self._random = source
        self._spread = spread
        self._delay = SIGN_IN_RETURNS if has_token else 0.0
        caps = (10.0, 30.0)
        if identity.writer is Writer.SIGN_IN:
            caps = (SIGN_IN_PAUSE, SIGN_IN_PAUSE)
        self._opening = Backoff(source, first=max(1.0, spread), cap=max(caps[0], spread))
        self._backoff = Backoff(source, first=1.0, cap=caps[1])
        self._is_first = False

    def before_opening(self) -> float:
        """Return the pause after a failed try to connect for the first time."""
        return self._opening.next()

    def lost(self, *, lasted: bool) -> None:
        """Record that the session ended; pauses grow while sessions do not last."""
        self._is_first = True
        if lasted:
            self._backoff.reset()

    def before_reconnect(self) -> float:
        """Return the pause before a try to connect again."""
        pause = max(self._random.uniform(0.0, self._spread), self._backoff.next())
        delay = self._delay if self._is_first else 0.0
        self._is_first = False
        return delay + pause
