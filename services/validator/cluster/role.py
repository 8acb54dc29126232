"""Validator's cluster role from start to stop: it hears evidence, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

import random as chance

from libs.bus.mirror import Mirror
from libs.bus.port import Bus
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.customs import Written, customs, followed
from libs.kube.transport import Transport
from libs.policy.belonging import Belonging, unsaid
from libs.policy.kinds import SELECTING
from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.validator.cluster.gathering import Gathering
from services.validator.cluster.settings import ValidatorClusterSettings
from services.validator.cluster.showing import Showing
from services.validator.cluster.things import NODES, SELECTOR

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
