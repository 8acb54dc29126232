"""Driver's cluster role: follows policies, Nodes and operands; writes while it leads."""

import asyncio

import msgspec

from libs.bus.connect import connect_bus
from libs.bus.slot_cache import SlotCache
from libs.contracts.identities import Writer
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.connect import connect
from libs.kube.controller import ControllerMetrics
from libs.kube.requests import Transport
from libs.policy.kinds.common import EnvVar
from libs.policy.render.rendered import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    AgentImages,
    RenderSettings,
)
from libs.policy.render.validation_pod import APP
from libs.runtime.env import Env
from libs.runtime.process import Process
from libs.runtime.service import Service
from services.cluster_role import Leading, LeadingSettings
from services.driver.cluster.claim_follower import ClaimFollower
from services.driver.cluster.controller import NAME, OperandController
from services.driver.cluster.handlers import ReportedHandlers
from services.driver.cluster.image_puller import ImagePuller
from services.driver.cluster.image_requests import ImageRequests
from services.driver.cluster.planner import CommandedDrivers, Planner
from services.driver.cluster.resources import MANAGER, VALIDATION_PODS, Informers, ValidatingPod
from services.driver.cluster.validation_pods import NAME as VALIDATION_PODS_NAME
from services.driver.cluster.validation_pods import ValidationPods
from services.driver.cluster.writes import DriverMetrics, PolicyEvents, Writes

LEASE = "sluice-driver-cluster"


class DriverClusterSettings(LeadingSettings, frozen=True, kw_only=True):
    pod_name: str = "driver-cluster"
    images: AgentImages
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    agent_env: tuple[str, ...] = ()
    """`NAME=value` each, for every agent: how to connect to the bus."""
    telemetry_env: tuple[str, ...] = ()
    """`NAME=value` each, for the telemetry agent: its own settings."""
    agent_bus_ca: str = ""
    """The ConfigMap whose `ca.crt` agents verify the bus with; empty without TLS."""

    def render_settings(self) -> RenderSettings:
        return RenderSettings(
            namespace=self.namespace,
            images=self.images,
            pull_policy=self.pull_policy,
            pull_secrets=self.pull_secrets,
            env=_variables(self.agent_env),
            telemetry_env=_variables(self.telemetry_env),
            bus_ca=self.agent_bus_ca,
        )


def _variables(entries: tuple[str, ...]) -> tuple[EnvVar, ...]:
    pairs = [entry.partition("=") for entry in entries]
    return tuple(EnvVar(name=name, value=value) for name, _, value in pairs)


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What one term of leadership takes over from the last."""

    leading: Leading
    informers: Informers
    validation_pods: Cache[ValidatingPod]
    commanded_drivers: CommandedDrivers
    handlers: ReportedHandlers
    image_requests: ImageRequests | None
    metrics: DriverMetrics
    controller_metrics: ControllerMetrics
    settings: RenderSettings
    env: Env


async def run(
    settings: DriverClusterSettings,
    *,
    env: Env,
    kube: Transport,
    commanded_drivers: CommandedDrivers,
    service: Service,
    handlers: ReportedHandlers | None = None,
    image_requests: ImageRequests | None = None,
) -> None:
    """Start the role. It deletes old drivers only while `commanded_drivers` are known.

    `handlers` are those that driver agents report; kubelets report most of them too. Without
    `image_requests` no image is brought to a node before it is drained.
    """
    namespace = settings.namespace
    leading = Leading(settings, kube=kube, manager=MANAGER, lease=LEASE, env=env)
    shared = _Shared(
        leading=leading,
        informers=Informers(leading.kube, namespace=namespace, env=env),
        validation_pods=Cache(
            leading.kube,
            VALIDATION_PODS,
            env=env,
            namespace=namespace,
            labels=f"{MANAGED_BY_LABEL}={MANAGED_BY},app={APP}",
        ),
        commanded_drivers=commanded_drivers,
        handlers=handlers or ReportedHandlers(env.clock),
        image_requests=image_requests,
        metrics=DriverMetrics(env),
        controller_metrics=ControllerMetrics(env.metrics, controllers=[NAME, VALIDATION_PODS_NAME]),
        settings=msgspec.structs.replace(
            settings.render_settings(), brings_images=image_requests is not None
        ),
        env=env,
    )
    leading.follow(service, shared.informers)
    service.run_forever("follow validation pods", shared.validation_pods.run())
    leading.compete(service, lambda fenced: _lead(fenced, shared))


async def _lead(fenced: Kube, shared: _Shared) -> None:
    """Act for one term of leadership."""
    informers, namespace, env = shared.informers, shared.settings.namespace, shared.env
    planner = Planner(
        informers,
        foreign=shared.leading.foreign,
        commanded_drivers=shared.commanded_drivers,
        claimed_nodes=lambda: claims.claimed_nodes,
        handlers=shared.handlers,
        settings=shared.settings,
        clock=env.clock,
    )
    claims = ClaimFollower(
        kube=fenced,
        namespace=namespace,
        nodes=informers.nodes,
        events=shared.leading.events,
        serves=lambda: planner.serves_claims,
        ends=lambda: planner.plan.claims_end,
        env=env,
    )
    writes = Writes(fenced, informers=informers, namespace=namespace, metrics=shared.metrics)
    controller = OperandController(
        kube=fenced,
        namespace=namespace,
        informers=informers,
        planner=planner,
        handlers=shared.handlers,
        writes=writes,
        events=PolicyEvents(shared.leading.events),
        metrics=shared.metrics,
        controller_metrics=shared.controller_metrics,
        env=env,
    )
    validation_pods = ValidationPods(
        kube=fenced,
        pods=shared.validation_pods,
        informers=informers,
        planner=planner,
        settings=shared.settings,
        writes=writes,
        controller_metrics=shared.controller_metrics,
        env=env,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        group.create_task(claims.run())
        group.create_task(validation_pods.run())
        if shared.image_requests is not None:
            puller = ImagePuller(
                kube=fenced,
                namespace=namespace,
                informers=informers,
                requests=shared.image_requests,
                why_held=lambda: planner.hold_reason,
                env=env,
            )
            group.create_task(puller.run())


async def start(process: Process[DriverClusterSettings], service: Service) -> None:
    """Start the role before the bus is connected: operands need only the API server."""
    settings, slots, handlers = process.settings, SlotCache(), ReportedHandlers(process.env.clock)
    image_requests = ImageRequests()
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    await run(
        settings,
        env=process.env,
        kube=kube,
        commanded_drivers=slots.commanded_drivers,
        service=service,
        handlers=handlers,
        image_requests=image_requests,
    )
    bus = await connect_bus(
        process=process, service=service, settings=settings.nats, writer=Writer.DRIVER_CLUSTER
    )
    await service.enter("commands", slots.follow(bus))
    await service.enter("handlers", handlers.follow(bus))
    await service.enter("image requests", image_requests.follow(bus))
