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
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.http import HttpSettings, Page, serve_pages
from libs.runtime.service import Service
from services.fleet_role import FleetSettings, FollowedFleet
from services.telemetry.cluster.fleet import NODES, SELECTOR, FleetTelemetry, Node
from services.telemetry.cluster.health import FleetHealth, HealthCollector
from services.telemetry.cluster.metrics import FleetCollector
from services.telemetry.cluster.page import fleet_page
from services.telemetry.exporter import Pages, metrics
from services.telemetry.exposition import HOSTNAME_LABEL, HostnameLabel


class TelemetryClusterSettings(FleetSettings, frozen=True, kw_only=True):
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
    followed = FollowedFleet(kube, NODES, manager=MANAGER, labels=SELECTOR, env=env)
    nodes = followed.nodes
    fleet = FleetTelemetry(nodes, pool_index=followed.pool_index, clock=env.clock)
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
    followed.follow(service)

    def metrics_page() -> Page:
        page = fleet_page(fleet.samples(), hostname_label=settings.hostname_label)
        return metrics(page)

    return {"/metrics": metrics_page}


async def run_and_export(
    settings: TelemetryClusterSettings, /, *, service: Service, **ports: Any
) -> None:
    """Start the role, and serve its pages over HTTP."""
    pages = await run(settings, service=service, **ports)
    await serve_pages(service, "exporter", settings.exporter, pages)
