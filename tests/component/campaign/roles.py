"""The cluster roles as processes that can be started, cut off and killed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from libs.bus.permissions import permissions
from libs.bus.slot_cache import SlotCache
from libs.contracts.identities import Identity, Writer
from libs.contracts.queries import PlanAnswer
from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response, Transport
from libs.policy.installation import service_account_of
from libs.runtime.fatal import Fatal
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, SteppedClock
from services.discovery.cluster import role as discovery_cluster
from services.discovery.cluster.role import DiscoveryClusterSettings
from services.driver.cluster import role as driver_cluster
from services.driver.cluster.image_requests import ImageRequests
from services.driver.cluster.role import DriverClusterSettings
from services.fleet_role import FleetSettings
from services.scheduler import role as scheduler
from services.scheduler.plan_process import PlanRequest, answer_plan
from services.scheduler.role import SchedulerSettings
from services.telemetry.cluster import role as telemetry_cluster
from services.telemetry.cluster.role import TelemetryClusterSettings
from services.validator.cluster import role as validator_cluster
from tests.unit.policy.situations import SETTINGS

NAMESPACE = SETTINGS.namespace
BUS_URL = "SLUICE_NATS_URL=nats://127.0.0.1:4222"
OPERANDS = DriverClusterSettings(namespace=NAMESPACE, images=SETTINGS.images, agent_env=(BUS_URL,))


def user_of(writer: Writer) -> str:
    """Return the role's user at the API server."""
    return f"system:serviceaccount:{NAMESPACE}:{service_account_of(writer)}"


class CuttableTransport:
    """A connection that can be cut, at once or after a number of writes; the last write arrives."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.writes = 0
        self.cut_after: int | None = None
        self.cut = asyncio.Event()
        self.lease_away = False
        """Leave lease requests without a response, so that a lost lease is detected late."""
        self.unguarded: list[str] = []
        """Deletions and evictions of pods without the uid of the pod as a precondition."""

    def __str__(self) -> str:
        return "a transport of a campaign"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        if self.cut.is_set():
            raise Unavailable(f"{request.method} {request.path}", "the process was killed")
        if self.lease_away and "/leases" in request.path:
            await asyncio.Event().wait()
        if _removes_pod(request) and not _names_uid(request):
            self.unguarded.append(str(request))
        self.writes += request.method != "GET" and "/leases" not in request.path
        async with self._transport.open(request) as response:
            if self.cut_after is not None and self.writes > self.cut_after:
                self.cut.set()
            if self.cut.is_set():
                raise Unavailable(f"{request.method} {request.path}", "the process was killed")
            yield response


def _removes_pod(request: Request) -> bool:
    evicts = request.method == "POST" and request.path.endswith("/eviction")
    return evicts or (request.method == "DELETE" and "/pods" in request.path)


def _names_uid(request: Request) -> bool:
    body = msgspec.json.decode(request.body) if request.body else {}
    options = body.get("deleteOptions", body)
    return bool(options.get("preconditions", {}).get("uid"))


class RoleProcess:
    def __init__(
        self, sim: Sim, *, server: ApiServer, bus: LocalServer, writer: Writer, number: int
    ) -> None:
        self.name = f"{writer}-{number}"
        identity = Identity(writer=writer)
        self.transport = CuttableTransport(server.transport(user=user_of(writer)))
        self.bus = bus.connect(identity, permissions=permissions(identity))
        self.clock = SteppedClock(sim.clock)
        """The clock of the machine that it runs on."""
        env = sim.env(self.name, metrics=Metrics(version="1"))
        self.env = msgspec.structs.replace(env, clock=self.clock)
        self.service = Service(writer.value, clock=self.clock)
        self.failure = ""
        """Why the process ended by itself."""
        self._dead = False
        self.task = asyncio.create_task(self._run(_RUNS[writer]), name=self.name)

    async def _run(self, run: Callable[["RoleProcess"], Coroutine[Any, Any, object]]) -> None:
        try:
            async with self.service:
                await run(self)
        except Fatal as error:
            if not self._dead:
                self.failure = str(error)

    async def kill(self) -> None:
        """Kill at once: nothing that the process still does takes effect."""
        self._dead = True
        self.transport.cut.set()
        self.bus.kill()
        self.task.cancel()
        await asyncio.wait({self.task})


async def _driver_cluster(role: RoleProcess) -> None:
    commanded, image_requests = SlotCache(), ImageRequests()
    await driver_cluster.run(
        OPERANDS,
        kube=role.transport,
        commanded_drivers=commanded.commanded_drivers,
        env=role.env,
        service=role.service,
        image_requests=image_requests,
    )
    await role.service.enter("commands", commanded.follow(role.bus))
    await role.service.enter("image requests", image_requests.follow(role.bus))


def _role(
    run: Callable[..., Coroutine[Any, Any, object]],
    settings: Callable[[str], object],
    **more: object,
) -> Callable[[RoleProcess], Coroutine[Any, Any, object]]:
    """Return the program of a role; `settings` returns its settings for the process's name."""
    return lambda role: run(
        settings(role.name),
        kube=role.transport,
        bus=role.bus,
        env=role.env,
        service=role.service,
        **more,
    )


async def _inline(request: PlanRequest) -> PlanAnswer:
    """Compute inline: there are no processes in virtual time."""
    return answer_plan(request)


_RUNS: dict[Writer, Callable[[RoleProcess], Coroutine[Any, Any, object]]] = {
    Writer.SCHEDULER: _role(
        scheduler.run,
        lambda name: SchedulerSettings(namespace=NAMESPACE, pod_name=name),
        plan_runner=_inline,
    ),
    Writer.DRIVER_CLUSTER: _driver_cluster,
    Writer.DISCOVERY_CLUSTER: _role(
        discovery_cluster.run,
        lambda name: DiscoveryClusterSettings(namespace=NAMESPACE, pod_name=name),
    ),
    Writer.VALIDATOR_CLUSTER: _role(validator_cluster.run, lambda _: FleetSettings()),
    Writer.TELEMETRY_CLUSTER: _role(telemetry_cluster.run, lambda _: TelemetryClusterSettings()),
}
ROLES = tuple(_RUNS)
