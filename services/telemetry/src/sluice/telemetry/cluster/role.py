"""Telemetry's cluster role from start to stop: it hears batches, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

import random as chance

from sluice.bus.fanin import FanIn
from sluice.bus.patience import Patience
from sluice.bus.port import Bus
from sluice.contracts.telemetry import Batch
from sluice.kube.cache import Cache
from sluice.kube.client import Kube
from sluice.kube.customs import Written, customs, followed
from sluice.kube.transport import Transport
from sluice.policy.belonging import Belonging, unsaid
from sluice.policy.kinds import SELECTING
from sluice.runtime.clock import Clock
from sluice.runtime.metrics import Metrics
from sluice.runtime.service import Service
from sluice.telemetry.cluster.fleet import Fleet
from sluice.telemetry.cluster.nodes import NODES, SELECTOR, Node
from sluice.telemetry.cluster.settings import TelemetryClusterSettings
from sluice.telemetry.cluster.showing import Showing

MANAGER = "sluice-telemetry"


async def run(
    settings: TelemetryClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    clock: Clock,
    random: chance.Random,
    metrics: Metrics,
    service: Service,
) -> None:
    """Live as long as the service."""
    asking = Kube(kube, manager=MANAGER, clock=clock)
    nodes = Cache(asking, NODES, clock=clock, random=random, labels=SELECTOR)
    written = followed(customs(SELECTING, Written), asking, clock=clock, random=random)
    belonging = Belonging(policies=written, nodes=lambda: unsaid(nodes))
    for cache in (nodes, *(source.cache for source in written.values())):
        cache.on_change(belonging.forget)
    fleet = Fleet(nodes, belonging=belonging, clock=clock)

    def take(batch: Batch) -> None:
        if not fleet.take(batch):
            fan_in.forget(batch.node)

    def changed(before: Node | None, after: Node | None) -> None:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            fleet.forget(before.metadata.name)
            fan_in.forget(before.metadata.name)

    fan_in = FanIn(bus=bus, cluster=settings.nats.cluster, take=take)
    nodes.on_change(changed)
    metrics.registry.register(Showing(fleet, fan_in))
    patience = Patience(clock=clock, random=random)
    service.ready_when("bus", lambda: patience.why or None)
    await patience.until_done(lambda: service.enter("batches", fan_in))
    service.run_forever("follow nodes", nodes.run())
    for source in written.values():
        service.run_forever(f"follow {source.name}", source.run())
    service.ready_when(
        "nodes", lambda: None if nodes.is_synced else nodes.why or "they are not listed yet"
    )
