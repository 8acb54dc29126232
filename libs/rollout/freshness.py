"""Whether the sources are recent enough to take capacity away (docs/states.md#freshness)."""

from typing import Final

import msgspec

from libs.rollout.limits import STALE_AFTER
from libs.rollout.views.fleet import Instant

PROBE_SECONDS: Final = 10.0


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """The sources to probe before a start, and why nothing may start yet."""

    probes: tuple[str, ...] = ()
    stale_reason: str = ""
    """Why nothing that lowers capacity starts now; empty: all sources are fresh."""
    wake_at: float | None = None


def freshness(now: Instant) -> Freshness:
    """Probe each source older than PROBE_SECONDS once, and give it time to answer."""
    probes: list[str] = []
    pending: list[tuple[float, str]] = []
    for name, source in sorted(now.visibility.sources.items()):
        age = now.at - source.proved
        if age <= PROBE_SECONDS:
            continue
        since = source.probed
        if since is None or since <= source.proved:
            probes.append(name)
        elif now.at - since < PROBE_SECONDS:
            pending.append((since + PROBE_SECONDS, name))
        elif age > STALE_AFTER:
            probes.append(name)
    names = sorted({*probes, *(name for _, name in pending)})
    return Freshness(
        probes=tuple(probes),
        stale_reason=f"waiting for current data on {', '.join(names)}" if names else "",
        wake_at=min(pending)[0] if pending else None,
    )
