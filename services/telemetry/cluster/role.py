"""Telemetry's cluster role: collects batches, follows Nodes, and exports both as metrics.

It writes nothing but events, whose ids are the same in all replicas, so any number of them may run:
each exports the whole fleet.
"""

from typing import Any

from libs.bus.events import EventPublisher
from libs.bus.port import Bus, BusRetry
from libs.bus.rates import SenderRates
from libs.bus.reports import ReportCache
from libs.bus.telemetry import MOST_BATCHES, TelemetryCollector
from libs.contracts.telemetry import Batch
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.informer import informers
from libs.kube.requests import Transport
from libs.kube.resources import CustomObject, custom_resources
from libs.policy.kinds import NODE_SELECTING_KINDS
from libs.policy.pool_index import PoolIndex, nodes_without_recorded_pool
from libs.runtime.env import Env
from libs.runtime.http import HttpSettings, Page
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.telemetry.cluster.fleet import NODES, SELECTOR, FleetTelemetry, Node
from services.telemetry.cluster.health import FleetHealth, HealthCollector
from services.telemetry.cluster.metrics import FleetCollector
from services.telemetry.cluster.page import fleet_page
from services.telemetry.exporter import Pages, export, metrics
from services.telemetry.exposition import HOSTNAME_LABEL, HostnameLabel


class TelemetryClusterSettings(ClusterSettings, frozen=True, kw_only=True):
    namespace: str = ""
    pod_name: str = ""
    """These two are set for every cluster role; this one does not use them."""
    exporter: HttpSettings = HttpSettings(port=9400)
    """Address of the page with the samples of all GPUs."""
    hostname_label: HostnameLabel = HOSTNAME_LABEL


MANAGER = "sluice-telemetry"


async def run(
    settings: TelemetryClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> Pages:
    """Start the role; return the pages for dashboards."""
    client = Kube(kube, manager=MANAGER, clock=env.clock)
    nodes = Cache(client, NODES, env=env, labels=SELECTOR)
    policies = informers(custom_resources(NODE_SELECTING_KINDS, CustomObject), client, env=env)
    pool_index = PoolIndex(policies=policies, nodes=lambda: nodes_without_recorded_pool(nodes))
    for cache in (nodes, *(informer.cache for informer in policies.values())):
        cache.on_change(pool_index.invalidate)
    fleet = FleetTelemetry(nodes, pool_index=pool_index, clock=env.clock)
    reports = ReportCache(bus=bus, clock=env.clock, cluster=settings.nats.cluster)
    publisher = EventPublisher(bus=bus, env=env, on_dropped=lambda: None)
    health = FleetHealth(nodes, reports, publisher=publisher, clock=env.clock)

    def add_batch(batch: Batch) -> None:
        if not fleet.add(batch):
            collector.forget(batch.node)

    def forget_deleted(before: Node | None, after: Node | None) -> None:
        """Forget a node that is gone, or has come back as another of the same name."""
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            fleet.forget(before.metadata.name)
            health.forget(before.metadata.name)
            collector.forget(before.metadata.name)

    collector = TelemetryCollector(
        bus=bus,
        cluster=settings.nats.cluster,
        on_batch=add_batch,
        rates=SenderRates(env.clock, most=MOST_BATCHES),
    )
    nodes.on_change(forget_deleted)
    env.metrics.registry.register(FleetCollector(fleet, collector))
    env.metrics.registry.register(HealthCollector(health))
    retry = BusRetry(env=env)
    service.ready_when("bus", lambda: retry.reason or None)
    await retry.until_success(lambda: service.enter("batches", collector))
    await retry.until_success(lambda: service.enter("reports", reports))
    service.run_forever("events", publisher.run())
    service.run_forever("follow nodes", nodes.run())
    for informer in policies.values():
        service.run_forever(f"follow {informer.name}", informer.run())
    service.ready_when(
        "nodes",
        lambda: None if nodes.is_synced else nodes.problem or "the Nodes are not listed yet",
    )

    def metrics_page() -> Page:
        page = fleet_page(fleet.samples(), hostname_label=settings.hostname_label)
        return metrics(page)

    return {"/metrics": metrics_page}


async def run_and_export(
    settings: TelemetryClusterSettings, /, *, service: Service, **ports: Any
) -> None:
    """Start the role, and serve its pages over HTTP."""
    await export(await run(settings, service=service, **ports), settings.exporter, service)
