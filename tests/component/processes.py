"""The real roles and agents of the services, as processes that tests start, stop and kill."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from libs.bus.agent import AgentSettings
from libs.bus.journal import Journal
from libs.bus.permissions import permissions
from libs.contracts.identities import Identity, Writer
from libs.contracts.queries import PlanAnswer
from libs.forecast.plan import plan
from libs.host.machine import InlineOffload
from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response, Transport
from libs.policy.crds import CEL_RULES
from libs.policy.installation import service_account_of
from libs.policy.plugin_config.config import MigStrategy
from libs.policy.render import agents
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim, SteppedClock
from services.agent_frame import Given
from services.discovery.cluster import role as discovery_cluster
from services.discovery.node import agent as discovery
from services.driver.cluster import role as driver_cluster
from services.driver.cluster.handlers import ReportedHandlers
from services.driver.cluster.image_requests import ImageRequests
from services.driver.node import agent as driver
from services.driver.plugin import agent as plugin
from services.driver.plugin.settings import PluginSettings
from services.fleet_role import FleetSettings
from services.scheduler import role as scheduler
from services.scheduler.plan_process import PlanRequest
from services.telemetry.cluster import role as telemetry_cluster
from services.telemetry.node import agent as telemetry
from services.validator.cluster import role as validator_cluster
from services.validator.node import agent as validator
from tests.unit.policy.situations import SETTINGS

NAMESPACE = SETTINGS.namespace
PLAYS: Final = 9
"""Of a plan; the services' own number is for `test_plan_process.py`, and takes a second."""
LEASE_NAMES = (scheduler.LEASE, driver_cluster.LEASE, discovery_cluster.LEASE)
OPERANDS = driver_cluster.DriverClusterSettings(
    namespace=NAMESPACE, images=SETTINGS.images, agent_env=("SLUICE_NATS_URL=nats://nats:4222",)
)


def user_of(writer: Writer) -> str:
    """Return the role's user at the API server."""
    return f"system:serviceaccount:{NAMESPACE}:{service_account_of(writer)}"


class CuttableTransport:
    """A connection that is cut by a kill, or after a number of writes; the last write arrives."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.writes = 0
        self.cut_after: int | None = None
        self.cut = asyncio.Event()
        self.is_defect: Callable[[Request], bool] = lambda _request: False
        """Which requests raise an error that no client of an API server foresees."""
        self.defects = 0
        self.rewrite: Callable[[bytes], bytes] = lambda data: data

    def __str__(self) -> str:
        return "a transport of a test"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        if self.cut.is_set():
            raise Unavailable(f"{request.method} {request.path}", "the process was killed")
        if self.is_defect(request):
            self.defects += 1
            raise ArithmeticError("a defect of a test")
        self.writes += request.method != "GET" and "/leases" not in request.path
        if self.cut_after is not None and self.writes > self.cut_after:
            self.cut.set()
        async with self._transport.open(request) as response:
            if self.cut.is_set():
                raise Unavailable(f"{request.method} {request.path}", "the process was killed")
            yield _RewrittenResponse(response, self)


class _RewrittenResponse:
    """A response with the bytes that a test makes of it."""

    def __init__(self, response: Response, transport: CuttableTransport) -> None:
        self._response = response
        self._transport = transport
        self.status = response.status
        self.headers = response.headers

    async def body(self) -> bytes:
        return self._transport.rewrite(await self._response.body())

    async def chunks(self) -> AsyncGenerator[bytes]:
        chunks = self._response.chunks()
        try:
            async for chunk in chunks:
                yield self._transport.rewrite(chunk)
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()


class Process:
    """A process of a cluster role, or of an agent on a machine."""

    def __init__(
        self,
        backends: "Backends",
        writer: Writer,
        run: Callable[["Process"], Coroutine[Any, Any, object]],
        *,
        name: str,
        node: str = "",
    ) -> None:
        identity = Identity(writer=writer, node=node)
        self.name = name
        self.writer = writer
        self.bus = backends.bus.connect(identity, permissions=permissions(identity))
        self.transport = CuttableTransport(backends.server.transport(user=user_of(writer)))
        self.metrics = Metrics(version="1")
        self.clock = SteppedClock(backends.sim.clock)
        """The clock of the machine that it runs on."""
        self.env = replace(backends.sim.env(name, metrics=self.metrics), clock=self.clock)
        self.service = Service(writer.value, clock=self.clock)
        self.result: object = None
        """The result of `run`."""
        self._run = run
        self._task = asyncio.create_task(self._live(), name=name)

    async def _live(self) -> None:
        with suppress(AgentKilled):
            async with self.service:
                self.result = await self._run(self)

    async def stop(self) -> None:
        """Stop as on SIGTERM: a leader releases its lease."""
        self.service.stop("the test is over")
        await self._task

    async def kill(self) -> None:
        """Kill at once: nothing that the process still does takes effect."""
        self.transport.cut.set()
        self.bus.kill()
        self._task.cancel()
        await asyncio.wait({self._task})

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels)


class Backends:
    """The simulated API server and bus that processes connect to."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.bus = LocalServer(env=sim.env("bus"))
        self.plans: list[PlanRequest] = []
        """The plans that were asked for."""
        self.nfd_enabled = True
        """Whether discovery writes the labels of node feature discovery."""
        self.commanded: Mapping[str, Collection[str]] | None = {}
        """The commanded drivers for the driver's cluster role; None: they cannot be read."""

    async def run_plan(self, request: PlanRequest) -> PlanAnswer:
        """Compute a plan inline, for there are no processes in virtual time, and with few plays."""
        self.plans.append(request)
        return plan(
            request.fleet,
            request.now,
            pool=request.pool,
            options=request.options,
            plays=PLAYS,
            finish_by=request.finish_by,
            seed=request.seed,
        ).answer


RunAgent = Callable[..., Coroutine[Any, Any, object]]
AGENTS: Final[Mapping[Writer, tuple[type[AgentSettings], RunAgent]]] = {
    Writer.DISCOVERY: (discovery.DiscoverySettings, discovery.run),
    Writer.DRIVER: (driver.DriverAgentSettings, driver.run),
    Writer.VALIDATOR: (validator.ValidatorSettings, validator.run),
    Writer.PLUGIN: (PluginSettings, plugin.run),
    Writer.TELEMETRY: (telemetry.TelemetrySettings, telemetry.run),
}


ARTEFACTS: Final = "artefacts"
"""The folder, beside those of the machines, that stands for the ConfigMap of artefacts."""

SWITCHES: Final[Mapping[Writer, Mapping[str, Any]]] = {
    Writer.DRIVER: {"toolkit": True},
    Writer.PLUGIN: {"mig_strategy": MigStrategy.MIXED},
}
"""Settings of agents: the device plugin offers what containers can get, whole or divided."""

AGENT_APPS: Final = {agent.component: agent.app for agent in agents.AGENTS}
"""The `app` label of each agent's pods."""


def run_agent(
    machine: SimulatedMachine, writer: Writer, *, node_uid: str, pod_uid: str, journal: Journal
) -> Callable[[Process], Coroutine[Any, Any, object]]:
    """Return the `run` of an agent in a pod of the machine."""
    settings: Any
    settings, run = AGENTS[writer]
    host = machine.host(
        InlineOffload(),
        comm=f"sluice-{writer}",
        pod_uid=pod_uid,
        changes=writer is Writer.DRIVER,
        proves=writer is Writer.VALIDATOR,
    )
    state_dir = machine.root / "var/lib/sluice" / writer
    named = dict(SWITCHES.get(writer, {}))
    if writer is Writer.DRIVER:
        named["artefacts"] = str(machine.root.parent / ARTEFACTS)
    return lambda process: run(
        settings(node=machine.name, node_uid=node_uid, state_dir=state_dir, **named),
        Given(
            bus=process.bus,
            host=host,
            journal=journal,
            env=process.env,
            service=process.service,
        ),
    )


async def _run_driver_cluster(backends: Backends, process: Process, **ports: Any) -> None:
    handlers, image_requests = ReportedHandlers(process.env.clock), ImageRequests()
    await driver_cluster.run(
        OPERANDS,
        commanded_drivers=lambda: backends.commanded,
        handlers=handlers,
        image_requests=image_requests,
        **ports,
    )
    await process.service.enter("handlers", handlers.follow(process.bus))
    await process.service.enter("image requests", image_requests.follow(process.bus))


def run_role(backends: Backends, process: Process) -> Coroutine[Any, Any, object]:
    """Return the `run` of a cluster role, with the connections of the process."""
    ports: dict[str, Any] = {
        "kube": process.transport,
        "env": process.env,
        "service": process.service,
    }
    if process.writer is Writer.DRIVER_CLUSTER:
        return _run_driver_cluster(backends, process, **ports)
    ports["bus"] = process.bus
    namespaced: dict[str, Any] = {"namespace": NAMESPACE, "pod_name": process.name}
    match process.writer:
        case Writer.SCHEDULER:
            settings = scheduler.SchedulerSettings(**namespaced)
            return scheduler.run(settings, plan_runner=backends.run_plan, **ports)
        case Writer.DISCOVERY_CLUSTER:
            settings = discovery_cluster.DiscoveryClusterSettings(
                **namespaced, nfd_enabled=backends.nfd_enabled
            )
            return discovery_cluster.run(settings, **ports)
        case Writer.VALIDATOR_CLUSTER:
            return validator_cluster.run(FleetSettings(), **ports)
        case Writer.TELEMETRY_CLUSTER:
            return telemetry_cluster.run(telemetry_cluster.TelemetryClusterSettings(), **ports)
        case _:
            raise ValueError(f"{process.writer} is no cluster role")
