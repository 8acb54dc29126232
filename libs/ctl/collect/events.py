"""Collect the events of the stream."""

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from libs.contracts.events import EventKind
from libs.contracts.message import MalformedMessage
from libs.contracts.node import STATE_LABEL
from libs.ctl.chosen_pools import chosen_pools
from libs.ctl.cluster import open_cluster
from libs.ctl.collect.versions import known_versions
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.listed_nodes import LISTED_NODES, known_metadata
from libs.ctl.options import Access
from libs.fleet.records import record_of
from libs.fleet.status import EventLine

if TYPE_CHECKING:
    from libs.contracts.events import Event


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted; empty: all."""

    since: float | None = None
    node: str = ""
    pool: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        kinds = [kind.value for kind in EventKind]
        if self.kind and self.kind not in kinds:
            raise Failure(
                ExitCode.WRONG_ARGUMENTS, f"--kind: {self.kind!r} is none of {', '.join(kinds)}"
            )

    def __str__(self) -> str:
        """What they are of, as it follows after `events`."""
        named = (self.node, self.pool, f"the kind {self.kind}" if self.kind else "")
        return "".join(f" of {name}" for name in named if name)

    def takes(self, event: "Event", members: Collection[str]) -> bool:
        """Whether an event is wanted; `members` are the nodes of the pool."""
        return (
            event.at >= (self.since or 0.0)
            and self.node in ("", event.node)
            and self.kind in ("", event.kind)
            and (not self.pool or self._is_of_pool(event, members))
        )

    def _is_of_pool(self, event: "Event", members: Collection[str]) -> bool:
        """Whether an event names the pool, or else a node that is in it now."""
        try:
            named: str = getattr(event.open(), "pool", "")
        except MalformedMessage:
            named = ""
        return named == self.pool if named else event.node in members


async def follow_events(
    access: Access, wanted: EventFilter, *, follow: bool
) -> AsyncGenerator[EventLine]:
    """Yield the events of the stream, in order; with `follow` without end."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.ctl.bus import open_bus
    from libs.ctl.failures import bus_failure

    versions, members = await _known(access, wanted.pool)
    async with open_bus(access) as bus:
        try:
            async with read_events(bus=bus, cluster=access.cluster, follow=follow) as events:
                async for stored in events:
                    if isinstance(stored, RecordedEvent) and wanted.takes(stored.event, members):
                        yield EventLine.of(stored.event, versions)
        except BusError as error:
            raise bus_failure(error) from error


async def _known(access: Access, pool: str) -> tuple[Mapping[str, str], Collection[str]]:
    """Return the versions of targets, and the nodes of a pool; fail if there is no such pool."""
    if not pool:
        return await known_versions(access), ()
    async with open_cluster(access) as cluster:
        rollouts = await cluster.rollouts()
        chosen_pools(rollouts, pool, every=False)
        listed = await cluster.list(LISTED_NODES, labels=STATE_LABEL)
        records = ((each.metadata.name, record_of(known_metadata(each))) for each in listed)
        members = {name for name, record in records if record is not None and record.pool == pool}
        return await cluster.versions(rollouts), members


async def require_node(access: Access, node: str) -> None:
    """Fail if the cluster has no such Node; where that is not known, it may have."""
    try:
        async with open_cluster(access) as cluster:
            await cluster.node(node)
    except Failure as failure:
        if failure.code is ExitCode.NOT_FOUND:
            raise
