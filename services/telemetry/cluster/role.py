"""Telemetry's cluster role from start to stop: it hears batches, follows Nodes, and shows both.

It writes nothing, so any number of them may run: each shows the whole fleet.
"""

from libs.bus.port import Bus
from libs.bus.retry import BusRetry
from libs.bus.telemetry import TelemetryCollector
from libs.contracts.telemetry import Batch
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.custom_resources import CustomObject, custom_resources, informers
from libs.kube.transport import Transport
from libs.policy.kinds import NODE_SELECTING_KINDS
from libs.policy.pool_index import PoolIndex, nodes_without_recorded_pool
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.telemetry.cluster.fleet import FleetTelemetry
from services.telemetry.cluster.metrics import FleetCollector
from services.telemetry.cluster.resources import NODES, SELECTOR, Node


class TelemetryClusterSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of telemetry's cluster role."""

    namespace: str = ""
    pod_name: str = ""
    """Every cluster role is told these two; this one writes nothing, in no namespace."""


MANAGER = "sluice-telemetry"


async def run(
    settings: TelemetryClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> None:
    """Live as long as the service."""
    asking = Kube(kube, manager=MANAGER, clock=env.clock)
    nodes = Cache(asking, NODES, env=env, labels=SELECTOR)
    written = informers(custom_resources(NODE_SELECTING_KINDS, CustomObject), asking, env=env)
    belonging = PoolIndex(policies=written, nodes=lambda: nodes_without_recorded_pool(nodes))
    for cache in (nodes, *(source.cache for source in written.values())):
        cache.on_change(belonging.invalidate)
    fleet = FleetTelemetry(nodes, belonging=belonging, clock=env.clock)

    def take(batch: Batch) -> None:
        if not fleet.add(batch):
            fan_in.forget(batch.node)

    def changed(before: Node | None, after: Node | None) -> None:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            fleet.forget(before.metadata.name)
            fan_in.forget(before.metadata.name)

    fan_in = TelemetryCollector(bus=bus, cluster=settings.nats.cluster, on_batch=take)
    nodes.on_change(changed)
    env.metrics.registry.register(FleetCollector(fleet, fan_in))
    patience = BusRetry(env=env)
    service.ready_when("bus", lambda: patience.reason or None)
    await patience.until_success(lambda: service.enter("batches", fan_in))
    service.run_forever("follow nodes", nodes.run())
    for source in written.values():
        service.run_forever(f"follow {source.name}", source.run())
    service.ready_when(
        "nodes", lambda: None if nodes.is_synced else nodes.problem or "they are not listed yet"
    )
