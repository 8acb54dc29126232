"""Validator's cluster role from start to stop: it hears evidence, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

import random as chance

from sluice.bus.mirror import Mirror
from sluice.bus.port import Bus
from sluice.kube.cache import Cache
from sluice.kube.client import Kube
from sluice.kube.customs import Written, customs, followed
from sluice.kube.transport import Transport
from sluice.policy.belonging import Belonging, unsaid
from sluice.policy.kinds import SELECTING
from sluice.runtime.clock import Clock
from sluice.runtime.metrics import Metrics
from sluice.runtime.service import Service
from sluice.validator.cluster.gathering import Gathering
from sluice.validator.cluster.settings import ValidatorClusterSettings
from sluice.validator.cluster.showing import Showing
from sluice.validator.cluster.things import NODES, SELECTOR

MANAGER = "sluice-validator"


async def run(
    settings: ValidatorClusterSettings,
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
    mirror = Mirror(bus=bus, clock=clock, cluster=settings.nats.cluster)
    written = followed(customs(SELECTING, Written), asking, clock=clock, random=random)
    belonging = Belonging(policies=written, nodes=lambda: unsaid(nodes))
    for cache in (nodes, *(source.cache for source in written.values())):
        cache.on_change(belonging.forget)
    metrics.registry.register(Showing(Gathering(nodes, mirror, belonging=belonging)))
    await service.enter("reports", mirror)
    service.run_forever("follow nodes", nodes.run())
    for source in written.values():
        service.run_forever(f"follow {source.name}", source.run())
    service.ready_when(
        "nodes", lambda: None if nodes.is_synced else nodes.why or "they are not listed yet"
    )
