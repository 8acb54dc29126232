"""An API server and a bus in virtual time with discovery's cluster role, to start and to kill.

The test plays the agents, the scheduler and the people.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from structlog.testing import capture_logs

from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Revision
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response, Transport
from libs.kube.resources import LEASES, NAMESPACES
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from services.discovery.cluster import resources
from services.discovery.cluster.role import LEASE, DiscoveryClusterSettings, run
from tests.component.policy.strict_writes import object_path, send
from tests.unit.policy.situations import cluster_policy

T = TypeVar("T")

NAMESPACE = "gpu-operator"
USER = f"system:serviceaccount:{NAMESPACE}:sluice-discovery-cluster"
IDENTITY = Identity(writer=Writer.DISCOVERY_CLUSTER)
ROLE_SETTINGS = DiscoveryClusterSettings(namespace=NAMESPACE)
BOOT = "boot-1"


class CuttableTransport:
    """A way to the server that can be cut, as by a kill."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.is_cut = False
        self.writes = 0

    def __str__(self) -> str:
        return "a wire of a test"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Until it is cut."""
        if self.is_cut:
            raise Unavailable(f"{request.method} {request.path}", "the process is dead")
        self.writes += request.method != "GET" and "/leases" not in request.path
        async with self._transport.open(request) as answer:
            yield answer


class RoleProcess:
    """One process of the role."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.transport = CuttableTransport(world.server.transport(user=USER))
        self.bus = world.bus.connect(IDENTITY)
        self.metrics = Metrics(version="1")
        self.service = Service("discovery-cluster", clock=world.sim.clock)
        self._task = asyncio.create_task(self._live(), name="role")

    async def _live(self) -> None:
        sim = self._world.sim
        async with self.service as service:
            await run(
                ROLE_SETTINGS,
                kube=self.transport,
                bus=self.bus,
                env=sim.env("role", metrics=self.metrics),
                service=service,
            )

    async def kill(self) -> None:
        """At once: nothing that it does from now on reaches anybody."""
        self.transport.is_cut = True
        self.bus.kill()
        self._task.cancel()
        await asyncio.wait({self._task})

    def value(self, name: str, **labels: str) -> float | None:
        """Of a metric."""
        return self.metrics.registry.get_sample_value(name, labels)


class World:
    """What a test has in its hands."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.bus = LocalServer(env=sim.env("bus"))
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)
        self.roles: list[RoleProcess] = []

    async def install(self, *, policy: bool = True) -> None:
        """Streams, a namespace, an empty lease, all kinds, and a policy."""
        scheduler = self.bus.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        await self.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self.kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace=NAMESPACE)
        for definition in crd_manifests().values():
            await self.apply(definition)
        await self.sleep(1)
        if policy:
            await self.apply(cluster_policy())

    async def apply(self, obj: dict[str, Any]) -> None:
        """`kubectl apply --server-side`; uids are the server's to give."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
        status, _, answer = await send(
            self.server.transport(user="person"),
            "PATCH",
            object_path(dict(obj)),
            {**obj, "metadata": metadata},
            content="application/apply-patch+yaml",
            force="true",
            fieldManager="kubectl",
        )
        assert status in (200, 201), answer

    # Nodes, and what is said of them.

    async def node(self, name: str, **labels: str) -> None:
        """A machine registers."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"nodeInfo": {"bootID": BOOT}},
        }
        await self.kube.request("POST", "/api/v1/nodes", body=body)

    async def get_node(self, name: str) -> resources.Node:
        """How it is now."""
        return await self.kube.get(resources.NODES, name)

    async def labels(self, name: str) -> dict[str, str]:
        """Its labels now."""
        return (await self.get_node(name)).metadata.labels

    async def label(
        self, name: str, labels: Mapping[str, str | None], *, manager: str = "kubectl"
    ) -> None:
        """`kubectl label node`."""
        await self.merge(name, {"metadata": {"labels": labels}}, manager=manager)

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """As the scheduler writes its record, or a feature discovery its claims."""
        await self.merge(name, {"metadata": {"annotations": annotations}})

    async def merge(self, name: str, change: Any, *, manager: str = "kubectl") -> None:
        """Whatever its revision."""
        path, query = resources.NODES.path(name=name), {"fieldManager": manager}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def report(
        self, name: str, facts: Facts, *, writer: Writer = Writer.DISCOVERY, boot: str = BOOT
    ) -> None:
        """An agent of this node reports."""
        uid = (await self.get_node(name)).metadata.uid
        report = Report.of(
            facts, node=name, node_uid=uid, boot_id=boot, component=writer, at=self.sim.clock.now()
        )
        agent = self.bus.connect(Identity(writer=writer, node=name))
        subject = subjects.State(cluster="default", node=name, component=writer, kind="facts")
        await agent.store(STATE, str(subject), encode(report))
        agent.kill()

    # The role.

    def start(self) -> RoleProcess:
        """Another process of it."""
        self.roles.append(RoleProcess(self))
        return self.roles[-1]

    async def lead(self) -> RoleProcess:
        """Another process, once it has done all that there was to do."""
        role = self.start()
        await self.sleep(10)
        return role

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    @property
    def revisions(self) -> list[Revision]:
        """What the role wrote, or tried to, but for its own lease."""
        found = self.server.journal.revisions
        return [one for one in found if one.user == USER and one.kind != "Lease"]

    @property
    def written(self) -> list[tuple[str, str]]:
        """Verb and name of what it wrote."""
        assert {one.kind for one in self.revisions} <= {"Node"}
        return [(one.verb, one.name) for one in self.revisions if one.code < 300]


def play(story: Callable[[World], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
    """A story in a world of its own; what it started is stopped."""

    async def main(sim: Sim) -> T:
        world = World(sim)
        try:
            return await story(world)
        finally:
            for role in world.roles:
                await role.kill()
            await world.server.stop()

    with capture_logs():
        return simulate(main, seed=seed)
