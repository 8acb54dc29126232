"""Validator's cluster role: collects evidence, follows Nodes, and exports both as metrics.

It writes nothing, so any number of replicas may run: each exports the whole fleet.
"""

from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.fleet_role import FleetSettings, FollowedFleet
from services.validator.cluster.proofs import NODES, SELECTOR, FleetProofs, ProofCollector

MANAGER = "sluice-validator"


async def run(
    settings: FleetSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> None:
    fleet = FollowedFleet(kube, NODES, manager=MANAGER, labels=SELECTOR, env=env)
    reports = ReportCache(bus=bus, clock=env.clock, cluster=settings.nats.cluster)
    proofs = FleetProofs(fleet.nodes, reports, pool_index=fleet.pool_index)
    env.metrics.registry.register(ProofCollector(proofs))
    await service.enter("reports", reports)
    fleet.follow(service)
