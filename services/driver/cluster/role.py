"""Driver's cluster role: what it follows, and what it does while it leads."""

from libs.kube.client import Kube
from libs.kube.events import EventRecorder
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.kube.leader import Candidate
from libs.kube.metrics import ControllerMetrics
from libs.kube.transport import Transport
from libs.policy.kinds.common import EnvVar
from libs.policy.render.settings import AgentImages, RenderSettings
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.driver.cluster.controller import NAME, OperandController
from services.driver.cluster.events import PolicyEvents
from services.driver.cluster.informers import Informers
from services.driver.cluster.metrics import DriverMetrics
from services.driver.cluster.planner import CommandedDrivers, Planner
from services.driver.cluster.resources import MANAGER
from services.driver.cluster.writes import Writes

LEASE = "sluice-driver-cluster"


class DriverClusterSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of driver's cluster role."""

    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "driver-cluster"
    """By which people recognise who holds the lease."""
    images: AgentImages
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    agent_env: tuple[str, ...] = ()
    """`NAME=value` each: for every agent, how it reaches the bus."""
    artefacts: str = "sluice-driver-artefacts"

    def of_operands(self) -> RenderSettings:
        """The same, as rendering asks for it."""
        pairs = [entry.partition("=") for entry in self.agent_env]
        return RenderSettings(
            namespace=self.namespace,
            images=self.images,
            pull_policy=self.pull_policy,
            pull_secrets=self.pull_secrets,
            env=tuple(EnvVar(name=name, value=value) for name, _, value in pairs),
            artefacts=self.artefacts,
        )


async def run(
    settings: DriverClusterSettings,
    *,
    env: Env,
    kube: Transport,
    commanded_drivers: CommandedDrivers,
    service: Service,
) -> None:
    """Follow policies, Nodes and operands; apply operands while leading.

    Old drivers are collected only while `commanded_drivers` can be told.
    """
    namespace = settings.namespace
    candidate = Candidate(
        kube,
        manager=MANAGER,
        namespace=namespace,
        lease=LEASE,
        identity=settings.pod_name,
        env=env,
    )
    informers = Informers(candidate.kube, namespace=namespace, env=env)
    foreign = GpuOperatorDetector()
    events = EventRecorder(kube=candidate.kube, env=env)
    metrics = DriverMetrics(env)
    controller_metrics = ControllerMetrics(env.metrics, controllers=[NAME])

    async def lead(fenced: Kube) -> None:
        controller = OperandController(
            kube=fenced,
            namespace=namespace,
            informers=informers,
            planner=Planner(
                informers,
                foreign=foreign,
                commanded_drivers=commanded_drivers,
                settings=settings.of_operands(),
                clock=env.clock,
            ),
            writes=Writes(fenced, informers=informers, namespace=namespace, metrics=metrics),
            events=PolicyEvents(events),
            metrics=metrics,
            controller_metrics=controller_metrics,
            env=env,
        )
        await controller.run()

    informers.leases.cache.on_change(
        lambda before, after: foreign.observe(before, after, now=env.clock.monotonic())
    )
    for source in informers.all():
        service.run_forever(f"follow {source.name}", source.run())
    service.run_forever("events", events.run())
    service.run_forever("lead", candidate.run(lead))
    service.ready_when("sources", lambda: informers.why_not_synced() or None)
