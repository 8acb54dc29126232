"""Validator's cluster role from start to stop: it hears evidence, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.custom_resources import CustomObject, custom_resources, informers
from libs.kube.transport import Transport
from libs.policy.kinds import NODE_SELECTING_KINDS
from libs.policy.pool_index import PoolIndex, nodes_without_recorded_pool
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.validator.cluster.metrics import ProofCollector
from services.validator.cluster.proofs import FleetProofs
from services.validator.cluster.resources import NODES, SELECTOR


class ValidatorClusterSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of validator's cluster role."""

    namespace: str = ""
    pod_name: str = ""
    """Every cluster role is told these two; this one writes nothing, in no namespace."""


MANAGER = "sluice-validator"


async def run(
    settings: ValidatorClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> None:
    """Live as long as the service."""
    asking = Kube(kube, manager=MANAGER, clock=env.clock)
    nodes = Cache(asking, NODES, env=env, labels=SELECTOR)
    mirror = ReportCache(bus=bus, clock=env.clock, cluster=settings.nats.cluster)
    written = informers(custom_resources(NODE_SELECTING_KINDS, CustomObject), asking, env=env)
    belonging = PoolIndex(policies=written, nodes=lambda: nodes_without_recorded_pool(nodes))
    for cache in (nodes, *(source.cache for source in written.values())):
        cache.on_change(belonging.invalidate)
    env.metrics.registry.register(ProofCollector(FleetProofs(nodes, mirror, belonging=belonging)))
    await service.enter("reports", mirror)
    service.run_forever("follow nodes", nodes.run())
    for source in written.values():
        service.run_forever(f"follow {source.name}", source.run())
    service.ready_when(
        "nodes", lambda: None if nodes.is_synced else nodes.problem or "they are not listed yet"
    )
