"""What the live view follows, and what a frame shows of it."""

import asyncio
from collections.abc import Mapping

from libs.ctl.cluster import Cluster
from libs.ctl.follow.events import EventSource
from libs.ctl.follow.kubernetes import KubernetesSource, make_env
from libs.ctl.options import Access
from libs.ctl.watch.listed import ListedEvents
from libs.ctl.watch.screen import Guide, Watched
from libs.ctl.watch.telemetry import TelemetrySource
from libs.fleet.state import FleetState


class WatchedFleet:
    """The state of the fleet, the last events, and the sources that keep both current."""

    def __init__(
        self,
        access: Access,
        cluster: Cluster,
        versions: Mapping[str, str],
        *,
        pool: str = "",
        telemetry: str = "",
        guide: Guide | None = None,
    ) -> None:
        self._address = cluster.address
        self._guide = guide
        self._is_measured = bool(telemetry)
        env = make_env()
        self.state = FleetState(versions, pool=pool)
        self.events = ListedEvents(self.state)
        kubernetes = KubernetesSource(cluster, self.state, env=env)
        events = EventSource(
            access,
            self.events,
            env=env,
            instead=lambda: self.events.follow_kubernetes(cluster, env=env),
        )
        self._sources: list[KubernetesSource | EventSource | TelemetrySource] = [kubernetes, events]
        if telemetry:
            self._sources.append(TelemetrySource(telemetry, self.state, clock=env.clock))

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._sources:
                group.create_task(each.run())

    def watched(self) -> Watched:
        """Return what there is to show now."""
        return Watched(
            address=self._address,
            pools=self.state.pools_with_waits(),
            nodes=self.state.nodes(),
            events=tuple(self.events.lines),
            sources=[each.source() for each in self._sources],
            is_measured=self._is_measured,
            guide=self._guide,
        )
