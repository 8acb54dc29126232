"""Collect a rollout from the stream of events, beside its plan."""

import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from libs.ctl.chosen_pools import only_pool
from libs.ctl.collect.versions import known_versions
from libs.ctl.comparison import Comparison
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.rollout_history import RolloutHistory
from libs.fleet.names import version_name


async def gather_comparison(access: Access, *, pool: str, version: str) -> Comparison:
    """Return the last rollout of a pool, or the last to a version, beside its plan."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.contracts.message import MalformedMessage
    from libs.ctl.bus import open_bus
    from libs.ctl.failures import bus_failure

    versions = await known_versions(access)
    history = RolloutHistory()
    async with open_bus(access) as bus:
        try:
            async with read_events(bus=bus, cluster=access.cluster) as events:
                async for stored in events:
                    if isinstance(stored, RecordedEvent):
                        with suppress(MalformedMessage):
                            history.add(stored.event, stored.event.open())
        except BusError as error:
            raise bus_failure(error) from error
    return _chosen(history, versions, pool=pool, version=version)


def _chosen(
    history: RolloutHistory, versions: Mapping[str, str], *, pool: str, version: str
) -> Comparison:
    if not history.pools():
        raise Failure(ExitCode.NOT_FOUND, "there is no rollout among the events of 30 days")
    pool = pool or only_pool(history.pools())
    targets = history.targets(pool)
    named = [each for each in targets if version in ("", version_name(each, versions))]
    if not named:
        known = ", ".join(version_name(each, versions) for each in targets) or "none"
        raise Failure(
            ExitCode.NOT_FOUND,
            f"no rollout of pool {pool!r} to {version or 'a driver'} is among the events of 30"
            f" days; pools with one: {', '.join(history.pools())}; drivers of this pool: {known}",
        )
    found = history.comparison(pool, named[0], now=time.time())
    return msgspec.structs.replace(found, version=version_name(found.target, versions))
