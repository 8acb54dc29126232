"""A cluster in virtual time with schedulers in it: to start, to cut off, to start again.

API server, kubelets and bus are simulated; the agents are scripted; the test plays driver's cluster
role and people.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from structlog.testing import capture_logs

from libs.bus.events import RecordedEvent, read_events
from libs.bus.permissions import permissions
from libs.bus.port import FromSequence
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Revision
from libs.contracts.queries import PlanAnswer
from libs.contracts.streams import STREAMS
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import Unavailable
from libs.kube.resources import LEASES, Resource
from libs.kube.transport import Request, Response, Transport
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.policy.installation.objects import installation_objects
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.views import REPLICA_SETS
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from libs.testing.stage.worlds import SteadyWorld
from services.scheduler import resources
from services.scheduler.role import LEASE, SchedulerSettings, run
from tests.component.policy.strict_writes import object_path, send
from tests.component.scheduler.scripted_agents import COMPONENTS, ScriptedAgents, ScriptedMachine
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

T = TypeVar("T")

NAMESPACE = SETTINGS.namespace
USER = f"system:serviceaccount:{NAMESPACE}:sluice-scheduler"
RBAC = "rbac.authorization.k8s.io/v1"
POLICY = "cluster-policy"
POOL = f"clusterpolicy-{POLICY}"
OLD, NEW = "570.86.15", "580.95.05"
STATE = "nvidia.com/gpu-driver-upgrade-state"
DEPLOYED = {
    "kubernetes.io/os": "linux",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
}


class CuttableTransport:
    """A way to the server that is cut after so many writes: what was sent last was carried out."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.writes = 0
        self.cut_after: int | None = None
        self.cut = asyncio.Event()

    def __str__(self) -> str:
        return "a wire of a test"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Until it is cut."""
        if self.cut.is_set():
            raise Unavailable(f"{request.method} {request.path}", "the process is dead")
        self.writes += request.method != "GET" and "/leases" not in request.path
        async with self._transport.open(request) as answer:
            if self.cut_after is not None and self.writes > self.cut_after:
                self.cut.set()
            if self.cut.is_set():
                raise Unavailable(f"{request.method} {request.path}", "the process is dead")
            yield answer


class SchedulerProcess:
    """One process."""

    def __init__(self, world: "World", *, name: str, cut_after: int | None = None) -> None:
        self._world = world
        sim = world.sim
        self.transport = CuttableTransport(world.server.transport(user=USER))
        self.transport.cut_after = cut_after
        identity = Identity(writer=Writer.SCHEDULER)
        self.bus = world.bus.connect(identity, permissions=permissions(identity))
        self.metrics = Metrics(version="1")
        self.service = Service("scheduler", clock=sim.clock)
        self._settings = SchedulerSettings(namespace=NAMESPACE, pod_name=name)
        self._task = asyncio.create_task(self._live(), name=name)

    async def _live(self) -> None:
        sim = self._world.sim
        async with self.service as service:
            await run(
                self._settings,
                kube=self.transport,
                bus=self.bus,
                env=sim.env(self._settings.pod_name, metrics=self.metrics),
                service=service,
                plan_runner=run_inline,
            )

    async def stop(self) -> None:
        """In order: it releases the lease."""
        self.service.stop("the test is over")
        await self._task

    async def kill(self) -> None:
        """At once: nothing that it does from now on reaches anybody."""
        self.transport.cut.set()
        self.bus.kill()
        self._task.cancel()
        await asyncio.wait({self._task})

    def value(self, name: str, **labels: str) -> float | None:
        """Of a metric."""
        return self.metrics.registry.get_sample_value(name, labels)


async def run_inline(work: Callable[[], PlanAnswer]) -> PlanAnswer:
    """There are no threads in virtual time."""
    return work()


class World:
    """What a test has in its hands."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.bus = LocalServer(env=sim.env("bus"))
        self.agents = ScriptedAgents(sim, self.bus)
        self.cluster = SimulatedCluster(
            self._kube_for,
            model=SteadyWorld(),
            env=sim.env("cluster"),
            processes=self.agents.occupants,
        )
        self.kube = self._kube_for("person", "kubectl")
        self.schedulers: list[SchedulerProcess] = []
        self._told: dict[str, dict[str, str]] = {}

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    # What whoever installs Sluice does.

    async def install(self, *nodes: str, version: str = OLD, **upgrade: Any) -> None:
        """Everything but the scheduler, and a policy; the nodes have their agents."""
        for obj in installation_objects(NAMESPACE):
            if obj["apiVersion"] != RBAC:
                await self.apply(obj)
        await self.kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace=NAMESPACE)
        for definition in crd_manifests().values():
            await self.apply(definition)
        first = self.bus.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await first.ensure(stream)
        first.kill()
        await self.sleep(1)
        for name in nodes:
            await self.add_machine(name)
        await self.apply_policy(version, **upgrade)

    async def add_machine(self, name: str, *, components: tuple[Writer, ...] = COMPONENTS) -> None:
        """One with GPUs, as discovery labels it, with agents on it."""
        labels = {**node(name).labels, **DEPLOYED}
        self._told[name] = labels
        machine = self.agents.machines[name] = ScriptedMachine(name)
        self.cluster.fleet.add(name, Hardware(labels=labels))
        await self.sleep(2)
        view = await self.kube.get(resources.NODES, name)
        machine.uid, machine.boot_id = view.metadata.uid, view.status.node_info.boot_id
        self.agents.start(machine, components=components)

    async def apply_policy(self, version: str, **upgrade: Any) -> None:
        """A person's patch of the policy, and what driver's cluster role makes of it."""
        driver = {"repository": "r.example/nvidia", "image": "driver", "version": version}
        policy = cluster_policy(
            driver={**driver, "upgradePolicy": {"autoUpgrade": True, **upgrade}}
        )
        answer = await self.apply(policy)
        facts = [node(name) for name in self._told]
        whole = {**policy, "metadata": answer["metadata"]}
        for made in drivers(Situation([whole], facts).rendering(SETTINGS)):
            await self.apply(made)

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

    async def start_job(self, name: str, node: str) -> None:
        """Somebody computes there, with GPUs, and would go on elsewhere."""
        needs = {"limits": {"nvidia.com/gpu": "2"}}
        container = {"name": "main", "image": "train:1", "resources": needs}
        spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
        labels = {"app": name}
        wanted = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        await self.kube.create(REPLICA_SETS, wanted, namespace="default")
        await self.sleep(5)

    async def patch(self, resource: Resource[Any], name: str, change: Any) -> None:
        """Merge into it, whatever its revision."""
        path = resource.path(name=name)
        query = {"fieldManager": "kubectl"}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def release_lease(self) -> None:
        """Somebody takes it from whoever holds it, who does not know; anybody may have it."""
        nobody = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
        path = LEASES.path(namespace=NAMESPACE, name=LEASE)
        await self.kube.request("PATCH", path, body=nobody, content_type=MERGE_PATCH)

    # Schedulers.

    def start(self, *, cut_after: int | None = None) -> SchedulerProcess:
        """Another process."""
        name = f"scheduler-{len(self.schedulers) + 1}"
        self.schedulers.append(SchedulerProcess(self, name=name, cut_after=cut_after))
        return self.schedulers[-1]

    # What is there.

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 300.0
    ) -> float:
        """Wait until it holds; gives the virtual seconds that took."""
        begun = self.sim.clock.monotonic()
        while not await holds():
            if self.sim.clock.monotonic() - begun >= within:
                raise AssertionError(f"not so after {within} s: {await self.bus_events()}")
            await self.sleep(0.1)
        return self.sim.clock.monotonic() - begun

    async def state(self, name: str) -> str:
        """The public label."""
        view = await self.kube.get(resources.NODES, name)
        return view.metadata.labels.get(STATE, "")

    async def wait_until_done(self, *names: str, within: float = 600.0, target: str = "") -> float:
        """Wait until all are, on the target that the Rollout names now."""

        async def so() -> bool:
            rollouts = await self.kube.list_page(resources.ROLLOUTS)
            (rollout,) = rollouts.items or (None,)
            if rollout is None or (target and rollout.status.target != target):
                return False
            counts = rollout.status.counts
            return rollout.status.phase == "Complete" and counts.done == len(names)

        return await self.until(so, within=within)

    async def rollout(self) -> resources.Rollout:
        """Of the only pool."""
        return await self.kube.get(resources.ROLLOUTS, POOL)

    async def kube_events(self) -> list[tuple[str, str]]:
        """Those for kubectl, in order: about which node, and the message."""
        body = await self.kube.request("GET", "/api/v1/namespaces/default/events")
        found = [
            one for one in msgspec.json.decode(body)["items"] if one["reason"] == "GPUDriverUpgrade"
        ]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["involvedObject"]["name"], one["message"]) for one in found]

    async def bus_events(self) -> list[Event]:
        """The events on the bus."""
        bus = self.bus.connect(Identity(writer=Writer.CTL))
        try:
            async with read_events(bus=bus, cluster="default", start=FromSequence()) as entries:
                return [one.event async for one in entries if isinstance(one, RecordedEvent)]
        finally:
            bus.kill()

    def revisions(
        self, kind: str = "Node", *, name: str = "", codes: Collection[int] = ()
    ) -> list[Revision]:
        """What schedulers wrote, or tried to."""
        return [
            one
            for one in self.server.journal.revisions
            if one.user == USER
            and one.kind == kind
            and name in ("", one.name)
            and (not codes or one.code in codes)
        ]

    def committed(self, name: str = "") -> list[Revision]:
        """Writes to Nodes that changed something."""
        return [one for one in self.revisions(name=name) if one.code < 300 and one.changed]


def play(story: Callable[[World], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
    """A story in a world of its own; what it started is stopped."""

    async def main(sim: Sim) -> T:
        world = World(sim)
        async with world.cluster:
            try:
                return await story(world)
            finally:
                for scheduler in world.schedulers:
                    await scheduler.kill()
                await world.agents.stop()
                # Who led lets go of the lease only when nothing of his can be carried out any more.
                await world.sleep(20)
                await world.server.stop()

    with capture_logs():
        return simulate(main, seed=seed)
