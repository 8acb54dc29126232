"""Driver's cluster role from start to stop: what it follows, and what it does while it leads."""

from libs.bus.connect import NatsSettings
from libs.kube.client import Kube
from libs.kube.events import EventRecorder
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.fence import FencedTransport
from libs.kube.lease.term import NotLeading, Term
from libs.kube.metrics import ControllerMetrics
from libs.kube.transport import Transport
from libs.policy.kinds.common import EnvVar
from libs.policy.render.settings import AgentImages, RenderSettings
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.process import ProcessSettings
from libs.runtime.service import Service
from services.driver.cluster.controller import NAME, OperandController
from services.driver.cluster.events import PolicyEvents
from services.driver.cluster.informers import Informers
from services.driver.cluster.metrics import DriverMetrics
from services.driver.cluster.planner import CommandedDrivers, Planner
from services.driver.cluster.resources import MANAGER
from services.driver.cluster.writes import Writes


class DriverClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of driver's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
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


LEASE = "sluice-driver-cluster"

_log = logger()


async def run(
    settings: DriverClusterSettings,
    *,
    kube: Transport,
    commanded_drivers: CommandedDrivers,
    env: Env,
    service: Service,
) -> None:
    """Start it. `slots` tells which drivers the commands on the bus name, or None while it cannot:
    nothing is collected then.
    """
    role = _Role(
        settings,
        kube=kube,
        commanded_drivers=commanded_drivers,
        env=env,
    )
    role.start(service)


class _Role:
    def __init__(
        self,
        settings: DriverClusterSettings,
        *,
        kube: Transport,
        commanded_drivers: CommandedDrivers,
        env: Env,
    ) -> None:
        asking = Kube(kube, manager=MANAGER, clock=env.clock)
        namespace = settings.namespace
        self._env = env
        self._settings = settings
        self._transport = kube
        self._slots = commanded_drivers
        self._clock = env.clock
        self._sources = Informers(asking, namespace=namespace, env=env)
        self._foreign = GpuOperatorDetector()
        self._events = EventRecorder(kube=asking, env=env)
        self._meters = DriverMetrics(env)
        self._controllers = ControllerMetrics(env.metrics, controllers=[NAME])
        self._lease = LeaderElector(
            kube=asking,
            namespace=namespace,
            name=LEASE,
            identity=settings.pod_name,
            env=env,
        )

    def start(self, service: Service) -> None:
        """What it follows, it follows also while another leads."""
        self._sources.leases.cache.on_change(
            lambda before, after: self._foreign.observe(before, after, now=self._clock.monotonic())
        )
        for source in self._sources.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("events", self._events.run())
        service.run_forever("lead", self._lead())
        service.ready_when("sources", lambda: self._sources.why_not_synced() or None)

    async def _lead(self) -> None:
        while True:
            try:
                async with self._lease.lead() as term:
                    await self._work(term).run()
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))

    def _work(self, term: Term) -> OperandController:
        kube = Kube(
            FencedTransport(self._transport, term, clock=self._clock),
            manager=MANAGER,
            clock=self._clock,
        )
        namespace = self._settings.namespace
        return OperandController(
            kube=kube,
            namespace=namespace,
            informers=self._sources,
            planner=Planner(
                self._sources,
                foreign=self._foreign,
                commanded_drivers=self._slots,
                settings=self._settings.of_operands(),
                clock=self._clock,
            ),
            writes=Writes(kube, informers=self._sources, namespace=namespace, metrics=self._meters),
            events=PolicyEvents(self._events),
            metrics=self._meters,
            controller_metrics=self._controllers,
            env=self._env,
        )
