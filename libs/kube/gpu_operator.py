"""Detect an active GPU Operator by its leader Lease, using only the local clock.

Each observed change of the Lease proves a live holder for the duration that the Lease states, even
if the Lease is deleted meanwhile: its holder recreates it.
"""

from typing import Final

from libs.kube.views import Lease

LEASE: Final = "53822513.nvidia.com"
"""Name of the Lease, in whatever namespace the operator runs."""

MIN_LEASE_SECONDS: Final = 15.0
"""Minimum duration, and the default for a Lease without one."""
SKEW: Final = 2.0
"""Allowance for clocks that run at different rates."""


class GpuOperatorDetector:
    """Tracks the holders of that Lease in every namespace."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, float]] = {}
        """Key of the Lease to a description of its holder and the time at which that expires."""

    def observe(self, before: Lease | None, after: Lease | None, *, now: float) -> None:
        lease = after or before
        if lease is None:
            return
        key, holder = lease.metadata.key, lease.spec.holder_identity
        if holder:
            seconds = max(MIN_LEASE_SECONDS, float(lease.spec.lease_duration_seconds or 0)) + SKEW
            self._holders[key] = (f"{holder} holds lease {key}", now + seconds)
        else:
            self._holders.pop(key, None)

    def active_holders(self, *, now: float) -> str:
        """Describe the active holders; empty if there are none."""
        return "; ".join(
            description for description, until in self._holders.values() if until > now
        )

    def seconds_until_expiry(self, *, now: float) -> float | None:
        """Return the seconds until the first active holder expires."""
        remaining = [until - now for _, until in self._holders.values() if until > now]
        return min(remaining, default=None)
