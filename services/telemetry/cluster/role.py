"""Telemetry's cluster role from start to stop: it hears batches, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

import random as chance

from libs.bus.fanin import FanIn
from libs.bus.patience import Patience
from libs.bus.port import Bus
from libs.contracts.telemetry import Batch
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.customs import Written, customs, followed
from libs.kube.transport import Transport
from libs.policy.belonging import Belonging, unsaid
from libs.policy.kinds import SELECTING
from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.telemetry.cluster.fleet import Fleet
from services.telemetry.cluster.nodes import NODES, SELECTOR, Node
from services.telemetry.cluster.settings import TelemetryClusterSettings
from services.telemetry.cluster.showing import Showing

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
