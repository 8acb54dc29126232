"""Validator's cluster role: collects evidence, follows Nodes, and exports both as metrics.

It writes nothing, so any number of replicas may run: each exports the whole fleet.
"""

from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.informer import informers
from libs.kube.requests import Transport
from libs.kube.resources import CustomObject, custom_resources
from libs.policy.kinds import NODE_SELECTING_KINDS
from libs.policy.pool_index import PoolIndex, nodes_without_recorded_pool
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.validator.cluster.proofs import NODES, SELECTOR, FleetProofs, ProofCollector


class ValidatorClusterSettings(ClusterSettings, frozen=True, kw_only=True):
    namespace: str = ""
    pod_name: str = ""
    """These two are set for every cluster role; this one does not use them."""


MANAGER = "sluice-validator"


async def run(
    settings: ValidatorClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> None:
    client = Kube(kube, manager=MANAGER, clock=env.clock)
    nodes = Cache(client, NODES, env=env, labels=SELECTOR)
    reports = ReportCache(bus=bus, clock=env.clock, cluster=settings.nats.cluster)
    policies = informers(custom_resources(NODE_SELECTING_KINDS, CustomObject), client, env=env)
    pool_index = PoolIndex(policies=policies, nodes=lambda: nodes_without_recorded_pool(nodes))
    for cache in (nodes, *(informer.cache for informer in policies.values())):
        cache.on_change(pool_index.invalidate)
    proofs = FleetProofs(nodes, reports, pool_index=pool_index)
    env.metrics.registry.register(ProofCollector(proofs))
    await service.enter("reports", reports)
    service.run_forever("follow nodes", nodes.run())
    for informer in policies.values():
        service.run_forever(f"follow {informer.name}", informer.run())
    service.ready_when(
        "nodes",
        lambda: None if nodes.is_synced else nodes.problem or "the Nodes are not listed yet",
    )
