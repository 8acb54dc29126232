"""A cluster in virtual time with driver's cluster role in it: to start, to cut off, to start again.

The API server and all that lives beside us are simulated; nobody plays the scheduler but the test.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from structlog.testing import capture_logs

from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import NotFound, Unavailable
from libs.kube.resources import LEASES, Resource
from libs.kube.transport import Request, Response, Transport
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.policy.installation.objects import installation_objects
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from services.driver.cluster import resources
from services.driver.cluster.role import LEASE, DriverClusterSettings, run
from tests.component.policy.strict_writes import object_path, send
from tests.unit.policy.situations import SETTINGS, node

T = TypeVar("T")

NAMESPACE = SETTINGS.namespace
USER = f"system:serviceaccount:{NAMESPACE}:sluice-driver-cluster"
RBAC = "rbac.authorization.k8s.io/v1"
ROLE_SETTINGS = DriverClusterSettings(
    namespace=NAMESPACE, images=SETTINGS.images, agent_env=("SLUICE_NATS_URL=nats://nats:4222",)
)


class CuttableTransport:
    """A way to the server that is cut after so many writes: what was sent last was carried out."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.writes = 0
        self.cut_after: int | None = None

    def __str__(self) -> str:
        return "a wire of a test"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Until it is cut."""
        if self.is_cut:
            raise Unavailable(f"{request.method} {request.path}", "the process is dead")
        counts = request.method != "GET" and "/leases/" not in request.path
        counts = counts and not request.path.endswith("/leases")
        self.writes += counts
        async with self._transport.open(request) as answer:
            if self.is_cut:
                raise Unavailable(f"{request.method} {request.path}", "the process is dead")
            yield answer

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through any more."""
        return self.cut_after is not None and self.writes > self.cut_after


class RoleProcess:
    """One process of the role."""

    def __init__(self, world: "World", *, cut_after: int | None = None) -> None:
        self._world = world
        sim = world.sim
        self.transport = CuttableTransport(world.server.transport(user=USER))
        self.transport.cut_after = cut_after
        self.metrics = Metrics(version="1")
        self.service = Service("driver-cluster", clock=sim.clock)
        self._task = asyncio.create_task(self._live(), name="role")

    async def _live(self) -> None:
        sim = self._world.sim
        async with self.service as service:
            await run(
                ROLE_SETTINGS,
                kube=self.transport,
                commanded_drivers=lambda: self._world.commanded,
                env=sim.env("role", metrics=self.metrics),
                service=service,
            )

    async def stop(self) -> None:
        """In order: it says what it has to say, and releases the lease."""
        self.service.stop("the test is over")
        await self._task

    async def kill(self) -> None:
        """At once: nothing that it does from now on reaches anybody."""
        self.transport.cut_after = -1
        self._task.cancel()
        await asyncio.wait({self._task})

    def value(self, name: str, **labels: str) -> float | None:
        """Of a metric."""
        return self.metrics.registry.get_sample_value(name, labels)


class World:
    """What a test has in its hands."""

    def __init__(self, sim: Sim, *, oddities: tuple[WorldOverride, ...] = ()) -> None:
        self.sim = sim
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.cluster = SimulatedCluster(
            self._kube_for,
            model=SteadyWorld(overrides=oddities),
            env=sim.env("cluster"),
            lease_every=60.0,
        )
        self.kube = self._kube_for("person", "kubectl")
        self.commanded: Mapping[str, Collection[str]] | None = {}
        self.roles: list[RoleProcess] = []

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    # What whoever installs Sluice does.

    async def install(self, *, crds: Collection[str] | None = None) -> None:
        """Namespace, accounts, an empty lease, and these kinds or all."""
        for obj in installation_objects(NAMESPACE):
            if obj["apiVersion"] != RBAC:
                await self.apply(obj)
        lease = {"metadata": {"name": LEASE, "labels": {"app": LEASE}}}
        await self.kube.create(LEASES, lease, namespace=NAMESPACE)
        await self.install_kinds(crd_manifests() if crds is None else crds)

    async def install_kinds(self, names: Collection[str]) -> None:
        """By the names of their definitions."""
        for name in names:
            await self.apply(crd_manifests()[name])
        await self.sleep(1)

    async def apply(self, obj: Mapping[str, Any]) -> dict[str, Any]:
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
        return answer

    # Nodes.

    def add_machine(self, name: str, **told: Any) -> None:
        """One with GPUs, as discovery labels it."""
        self.cluster.fleet.add(name, Hardware(labels=dict(node(name, **told).labels)))

    async def label(self, name: str, **labels: str | None) -> None:
        """`kubectl label node`."""
        await self.patch(resources.NODES, name, {"metadata": {"labels": labels}})

    async def set_driver_label(self, name: str, driver: str) -> None:
        """As the scheduler does it: the node runs the driver of this DaemonSet."""
        await self.label(name, **{DRIVER_LABEL: driver.removeprefix("nvidia-driver-daemonset-")})

    async def patch(
        self, resource: Resource[Any], name: str, change: Any, *, subresource: str = ""
    ) -> None:
        """Merge into it, whatever its revision."""
        namespace = NAMESPACE if resource.namespaced else ""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = {"fieldManager": "kubectl"}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def remove(self, resource: Resource[Any], name: str) -> None:
        """`kubectl delete`."""
        namespace = NAMESPACE if resource.namespaced else ""
        path = resource.path(namespace=namespace, name=name)
        await self.kube.request("DELETE", path, body={"propagationPolicy": "Background"})

    # The role.

    def start(self, *, cut_after: int | None = None) -> RoleProcess:
        """Another process of the role."""
        self.roles.append(RoleProcess(self, cut_after=cut_after))
        return self.roles[-1]

    async def lead(self) -> RoleProcess:
        """Another process, once it has done all that there was to do."""
        role = self.start()
        await self.sleep(30)
        return role

    # What is there.

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    async def daemon_sets(self) -> dict[str, resources.DaemonSet]:
        """By name."""
        page = await self.kube.list_page(resources.DAEMON_SETS, namespace=NAMESPACE)
        return {one.metadata.name: one for one in page.items}

    async def drivers(self) -> list[str]:
        """The names of the DaemonSets of drivers, in the order in which they were made."""
        found = [
            one for name, one in (await self.daemon_sets()).items() if "driver-daemonset-" in name
        ]
        found.sort(key=lambda one: one.metadata.creation_timestamp)
        return [one.metadata.name for one in found]

    async def driver(self, *, system: str = "ubuntu22.04", but: Collection[str] = ()) -> str:
        """The name of the only DaemonSet of a driver for nodes of this system, but for those."""
        found = [
            name
            for name, one in (await self.daemon_sets()).items()
            if one.metadata.labels.get("nvidia.com/node.os-version") == system and name not in but
        ]
        assert len(found) == 1, found
        return found[0]

    async def exists(self, resource: Resource[Any], name: str) -> bool:
        """Whether it is."""
        namespace = NAMESPACE if resource.namespaced else ""
        try:
            await self.kube.get(resource, name, namespace=namespace)
        except NotFound:
            return False
        return True

    async def conditions(self, kind: str, name: str) -> dict[str, dict[str, Any]]:
        """Of a policy, by type."""
        view = await self.kube.get(resources.POLICIES[kind], name)
        return {one["type"]: one for one in (view.status or {}).get("conditions", [])}

    async def state(self, kind: str, name: str) -> str:
        """Of a policy, in one word."""
        view = await self.kube.get(resources.POLICIES[kind], name)
        return (view.status or {}).get("state", "")

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 120.0
    ) -> float:
        """Wait until it holds; gives the virtual seconds that took."""
        begun = self.sim.clock.monotonic()
        while not await holds():
            assert self.sim.clock.monotonic() - begun < within, f"not so after {within} s"
            await self.sleep(0.1)
        return self.sim.clock.monotonic() - begun

    async def events(self) -> list[tuple[str, str]]:
        """Reason and message of those about policies."""
        page = await self.kube.request("GET", "/api/v1/namespaces/default/events")
        found = msgspec.json.decode(page)["items"]
        return [
            (one["reason"], one["message"])
            for one in found
            if one["involvedObject"]["kind"] in resources.POLICIES
        ]

    @property
    def revisions(self) -> list[Revision]:
        """What the role wrote, or tried to, but for its own lease."""
        return [
            one
            for one in self.server.journal.revisions
            if one.user == USER and one.kind not in ("Lease", "Event")
        ]

    @property
    def written(self) -> list[tuple[str, str, str]]:
        """Verb, kind and name of what it wrote."""
        return [(one.verb, one.kind, one.name) for one in self.revisions if one.code < 300]


def play(story: Callable[[World], Coroutine[Any, Any, T]], *oddities: WorldOverride) -> T:
    """A story in a world of its own; what it started is stopped."""

    async def main(sim: Sim) -> T:
        world = World(sim, oddities=oddities)
        async with world.cluster:
            try:
                return await story(world)
            finally:
                for role in world.roles:
                    await role.kill()
                await world.server.stop()

    with capture_logs():
        return simulate(main, seed=1)
