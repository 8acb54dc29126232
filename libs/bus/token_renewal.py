"""When to sign in again with a renewed token: before the present one expires."""

import base64
import logging
import math
import random

import msgspec

from libs.runtime.clock import Clock

log = logging.getLogger("sluice.bus")

EARLIEST, LATEST = 0.85, 0.95
"""The part of a token's life after which its session is renewed; kubelet renews a token at 0.8."""

_MAX_PAYLOAD = 16 * 1024


class TokenLife(msgspec.Struct, frozen=True):
    """What a token says about itself; its signature is not verified."""

    issued: float
    expires: float

    def after(self, part: float) -> float:
        return self.issued + part * (self.expires - self.issued)


class _Claims(msgspec.Struct):
    iat: float
    exp: float


def token_life(token: str) -> TokenLife | None:
    """Return when a JWT was issued and expires; None for a token that does not say so."""
    parts = token.split(".", 3)
    if len(parts) != 3 or len(parts[1]) > _MAX_PAYLOAD:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload, type=_Claims)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    is_sound = math.isfinite(claims.iat) and math.isfinite(claims.exp) and claims.iat < claims.exp
    return TokenLife(claims.iat, claims.exp) if is_sound else None


class TokenRenewal:
    """The token of the current session, and whether a newer one should replace it."""

    def __init__(self, *, name: str, clock: Clock, source: random.Random) -> None:
        self._name = name
        self._clock = clock
        self._random = source
        self._life: TokenLife | None = None
        self._due = math.inf
        self._warned = False

    def used(self, token: str) -> None:
        """Record the token of a new session."""
        self._life = token_life(token)
        self._warned = False
        part = self._random.uniform(EARLIEST, LATEST)
        self._due = math.inf if self._life is None else self._life.after(part)

    def is_due(self) -> bool:
        """Return whether the session should be renewed if there is a newer token."""
        return self._clock.now() >= self._due

    def is_newer(self, token: str) -> bool:
        """Return whether this token lasts longer than that of the session."""
        if self._life is None:
            return False
        life = token_life(token)
        if life is not None and life.expires > self._life.expires:
            return True
        if not self._warned:
            log.warning(
                "%s holds no newer token than that of the session, which expires in %.0f s: check"
                " that kubelet renews it",
                self._name,
                max(0.0, self._life.expires - self._clock.now()),
            )
            self._warned = True
        return False
