"""Whether what is seen is recent enough to take something away on it (docs/states.md#freshness).

Must not know nodes or pools.
"""

from typing import Final

import msgspec

from libs.rollout.limits import STALE_AFTER
from libs.rollout.views.fleet import Instant

PROBE_SECONDS: Final = 10.0


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """What must be asked before something starts, and whether it can start all the same."""

    probes: tuple[str, ...] = ()
    stale_reason: str = ""
    """Why nothing that lowers capacity starts now, for a person."""
    wake_at: float | None = None


def freshness(now: Instant) -> Freshness:
    """Each source that is not quite fresh is asked once, and given time to answer."""
    probes: list[str] = []
    asked: list[tuple[float, str]] = []
    for name, source in sorted(now.visibility.sources.items()):
        age = now.at - source.proved
        if age <= PROBE_SECONDS:
            continue
        since = source.probed
        if since is None or since <= source.proved:
            probes.append(name)
        elif now.at - since < PROBE_SECONDS:
            asked.append((since + PROBE_SECONDS, name))
        elif age > STALE_AFTER:
            probes.append(name)
    names = sorted({*probes, *(name for _, name in asked)})
    return Freshness(
        probes=tuple(probes),
        stale_reason=f"waiting for current data on {', '.join(names)}" if names else "",
        wake_at=min(asked)[0] if asked else None,
    )
