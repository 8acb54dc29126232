"""Whether a GPU Operator is at work here: by its Lease, and by no clock but our own. Pure.

A Lease that changes is held by somebody who lives, so it counts for as long as it says, from the
last change that we saw, also after it was deleted: its holder makes it anew.
"""

from typing import Final

from libs.kube.views import Lease

LEASE: Final = "53822513.nvidia.com"
"""Held by a GPU Operator that is at work, in whatever namespace it is."""

MIN_LEASE_SECONDS: Final = 15.0
"""What a Lease says that says nothing, or less."""
SKEW: Final = 2.0
"""Clocks run differently."""


class GpuOperatorDetector:
    """What was seen of its Lease, in each namespace."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, float]] = {}
        """Who holds it, and until when that counts."""

    def observe(self, before: Lease | None, after: Lease | None, *, now: float) -> None:
        """A Lease of that name is there, has changed, or is gone."""
        lease = after or before
        if lease is None:
            return
        key, holder = lease.metadata.key, lease.spec.holder_identity
        if holder:
            seconds = max(MIN_LEASE_SECONDS, float(lease.spec.lease_duration_seconds or 0)) + SKEW
            self._held[key] = (f"{holder} holds lease {key}", now + seconds)
        else:
            self._held.pop(key, None)

    def active_holders(self, *, now: float) -> str:
        """Who is, in words; empty: nobody."""
        return "; ".join(words for words, until in self._held.values() if until > now)

    def seconds_until_expiry(self, *, now: float) -> float | None:
        """Seconds until the first of them counts no more, unless it is seen again."""
        left = [until - now for _, until in self._held.values() if until > now]
        return min(left, default=None)
