"""Discovery's cluster role: follows Nodes, policies, configurations and reports.

While it leads it writes labels, Devices, the condition of Nodes, and Events.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.port import Bus, BusRetry
from libs.bus.reports import ReportCache
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.controller import ControllerMetrics
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import Leading, LeadingSettings
from services.discovery.cluster.controller import NAME, LabelController
from services.discovery.cluster.device_controller import NAME as DEVICES_NAME
from services.discovery.cluster.device_controller import DeviceController
from services.discovery.cluster.device_writes import DeviceWrites
from services.discovery.cluster.hold import Hold
from services.discovery.cluster.resources import MANAGER, Informers
from services.discovery.cluster.silence import TelemetrySilence
from services.discovery.cluster.writes import DiscoveryMetrics, Writes

LEASE: Final = "sluice-discovery-cluster"


class DiscoveryClusterSettings(LeadingSettings, frozen=True, kw_only=True):
    pod_name: str = "discovery-cluster"
    nfd_enabled: bool = True
    """Write the labels of node feature discovery. False where NFD itself runs and writes them."""


async def run(
    settings: DiscoveryClusterSettings, *, env: Env, bus: Bus, kube: Transport, service: Service
) -> None:
    reports = ReportCache(bus=bus, clock=env.clock, cluster=bus.identity.cluster)
    beats = HeartbeatMonitor(
        bus=bus, clock=env.clock, cluster=bus.identity.cluster, component=Writer.TELEMETRY
    )
    leading = Leading(settings, kube=kube, manager=MANAGER, lease=LEASE, env=env)
    informers = Informers(leading.kube, namespace=settings.namespace, env=env)
    metrics = DiscoveryMetrics(env.metrics)
    controller_metrics = ControllerMetrics(env.metrics, controllers=[NAME, DEVICES_NAME])

    async def lead(fenced: Kube) -> None:
        writes = Writes(fenced, informers=informers, metrics=metrics, clock=env.clock)
        hold = Hold()
        labels = LabelController(
            informers=informers,
            reports=reports,
            foreign=leading.foreign,
            writes=writes,
            events=leading.events,
            hold=hold,
            nfd_labels=settings.nfd_enabled,
            metrics=metrics,
            controller_metrics=controller_metrics,
            env=env,
        )
        devices = DeviceController(
            informers=informers,
            reports=reports,
            silence=TelemetrySilence(beats, clock=env.clock),
            writes=writes,
            device_writes=DeviceWrites(fenced, informers=informers, metrics=metrics),
            events=leading.events,
            hold=hold,
            metrics=metrics,
            controller_metrics=controller_metrics,
            env=env,
        )
        async with asyncio.TaskGroup() as controllers:
            controllers.create_task(labels.run(), name=NAME)
            controllers.create_task(devices.run(), name=DEVICES_NAME)

    # Reports are followed before a term can begin: its first decisions are about them.
    await service.enter("reports", reports)
    service.run_forever("heartbeats", _listen(beats, env=env))
    leading.follow(service, informers)
    leading.compete(service, lead)


async def _listen(beats: HeartbeatMonitor, *, env: Env) -> None:
    """Follow the heartbeats as soon as the bus is there; labels do not wait for that."""
    async with AsyncExitStack() as stack:
        await BusRetry(env=env).until_success(lambda: stack.enter_async_context(beats))
        await asyncio.Event().wait()
