"""A cluster in virtual time, in which tests start the real roles and agents of the services.

API server, kubelets, bus and machines are simulated. Services that a test does not start are played
by the test: it applies policies and labels, and reports for agents.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from structlog.testing import capture_logs

from libs.bus.events import RecordedEvent, read_events
from libs.contracts import subjects
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry, Revision
from libs.contracts.message import encode
from libs.contracts.reports import Report, StateBody
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.resources import LEASES, NODES, PODS, Resource
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects
from libs.testing.bus.local_bus import LocalBus
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.container import ContainerProcess
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from libs.testing.stage.worlds import MachineModel, SteadyWorld
from tests.builders.objects import pod
from tests.component.policy.strict_writes import object_path, send
from tests.component.processes import (
    AGENT_APPS,
    LEASE_NAMES,
    NAMESPACE,
    Backends,
    Process,
    run_agent,
    run_role,
    user_of,
)

T = TypeVar("T")
W = TypeVar("W", bound="World")

STEADY = SteadyWorld()
RBAC = "rbac.authorization.k8s.io/v1"


class World(Backends):
    """A test's cluster; `WRITER` is the role under test."""

    WRITER: ClassVar[Writer]
    SETTLE: ClassVar[float] = 10.0
    """Seconds after which a new leader has written all changes."""
    CONTROLLERS: ClassVar[bool] = True
    """Run Kubernetes' own controllers."""

    def __init__(self, sim: Sim, folder: Path, model: MachineModel = STEADY) -> None:
        super().__init__(sim)
        self._folder = folder
        self._model = model
        self.cluster = SimulatedCluster(
            self._kube_for,
            model=model,
            env=sim.env("cluster"),
            processes=self._process_for,
            controllers=self.CONTROLLERS,
            lease_every=60.0,
        )
        self.kube = self._kube_for("person", "kubectl")
        self.machines: dict[str, SimulatedMachine] = {}
        self.roles: list[Process] = []
        self.agents: list[Process] = []
        self.journals = defaultdict[tuple[str, Writer], list[Entry]](list)

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    def _process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        machine = self.machines.get(pod.spec.node_name)
        return None if machine is None else machine.process_for(pod, container)

    # Administration.

    async def install(self, *, crds: Collection[str] | None = None) -> None:
        """Install Sluice without RBAC, with these CRDs or all."""
        for obj in installation_objects(NAMESPACE):
            if obj["apiVersion"] != RBAC:
                await self.apply(obj)
        for name in LEASE_NAMES:
            lease = {"metadata": {"name": name, "labels": {"app": name}}}
            await self.kube.create(LEASES, lease, namespace=NAMESPACE)
        bus = self.connect(Writer.SCHEDULER)
        for stream in STREAMS:
            await bus.ensure(stream)
        bus.kill()
        await self.install_crds(crd_manifests() if crds is None else crds)

    async def install_crds(self, names: Collection[str]) -> None:
        for name in names:
            await self.apply(crd_manifests()[name])
        await self.sleep(1)

    async def apply(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Apply as `kubectl apply --server-side`; the server chooses the uid."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
        status, _, response = await send(
            self.server.transport(user="person"),
            "PATCH",
            object_path(dict(obj)),
            {**obj, "metadata": metadata},
            content=APPLY_PATCH,
            force="true",
            fieldManager="kubectl",
        )
        assert status in (200, 201), response
        return response

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        change: Any,
        *,
        subresource: str = "",
        manager: str = "kubectl",
    ) -> None:
        """Merge into the object, whatever its revision."""
        namespace = NAMESPACE if resource.namespaced else ""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = {"fieldManager": manager}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def label(
        self, name: str, labels: Mapping[str, str | None], *, manager: str = "kubectl"
    ) -> None:
        await self.patch(NODES, name, {"metadata": {"labels": labels}}, manager=manager)

    async def remove(self, resource: Resource[Any], name: str) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        path = resource.path(namespace=namespace, name=name)
        await self.kube.request("DELETE", path, body={"propagationPolicy": "Background"})

    # Nodes and agents.

    async def add_node(self, name: str, labels: Mapping[str, str], *, boot: str) -> str:
        """Create a Node without a machine; return its uid."""
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"nodeInfo": {"bootID": boot}},
        }
        return (await self.kube.create(NODES, body)).metadata.uid

    def add_machine(self, name: str, *, labels: Mapping[str, str], **more: Any) -> SimulatedMachine:
        """Add a machine with a kubelet; `start_agent` starts Sluice's agents there."""
        machine = self.machines[name] = SimulatedMachine(
            self._folder / name,
            name=name,
            model=self._model,
            env=self.sim.env(name),
            cache_reads=True,
            **more,
        )
        machine.join(self.cluster.fleet, labels=labels)
        return machine

    async def start_agent(self, node: str, writer: Writer) -> Process:
        """Start an agent in a pod on a machine whose Node exists."""
        machine, uid = self.machines[node], self.cluster.fleet[node].node_uid
        number = len(self.agents) + 1
        meta = {"labels": {"app": AGENT_APPS[writer]}}
        agent_pod = pod(f"{writer}-{number}", node=node, meta=meta)
        pod_uid = (await self.kube.create(PODS, agent_pod, namespace=NAMESPACE)).metadata.uid
        pause = partial(self.write_journal, node, writer)
        journal = MemoryJournal(self.journals[node, writer], pause=pause)
        run = run_agent(machine, writer, node_uid=uid, pod_uid=pod_uid, journal=journal)
        agent = Process(self, writer, run, name=f"{writer}-{number} of {node}", node=node)
        self.agents.append(agent)
        return agent

    async def write_journal(self, _node: str, _writer: Writer) -> None:
        """Pause as an agent does before and after each write to its journal."""
        await self.sleep(0.001)

    async def kill_agents(self, node: str = "", writer: Writer | None = None) -> None:
        """Kill the agents of a node, or of all; all of them, or one."""
        for agent in self.agents:
            if node in ("", agent.bus.identity.node) and writer in (None, agent.writer):
                await agent.kill()

    async def power_off(self, node: str) -> None:
        """Power off a machine, and with it its agents."""
        await self.kill_agents(node)
        self.machines[node].power_off()

    async def report(
        self, node: str, body: StateBody, *, writer: Writer, boot: str, kind: str
    ) -> None:
        """Report as an agent of the node does."""
        uid = (await self.kube.get(NODES, node)).metadata.uid
        report = Report.of(
            body, node=node, node_uid=uid, boot_id=boot, component=writer, at=self.sim.clock.now()
        )
        bus = self.connect(writer, node=node)
        subject = subjects.State(cluster="default", node=node, component=writer, kind=kind)
        await bus.store(STATE, str(subject), encode(report))
        bus.kill()

    def connect(self, writer: Writer, *, node: str = "") -> LocalBus:
        return self.bus.connect(Identity(writer=writer, node=node))

    # Roles.

    def start(self, writer: Writer | None = None, *, cut_after: int | None = None) -> Process:
        """Start another process of a cluster role, by default of the role under test."""
        writer = writer or self.WRITER
        name = f"{writer}-{len(self.roles) + 1}"
        role = Process(self, writer, lambda process: run_role(self, process), name=name)
        role.transport.cut_after = cut_after
        self.roles.append(role)
        return role

    async def lead(self) -> Process:
        """Start another process of the role under test, and wait until it has settled."""
        role = self.start()
        await self.sleep(self.SETTLE)
        return role

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 300.0
    ) -> float:
        """Wait until the condition holds; return the virtual seconds that it took."""
        began = self.sim.clock.monotonic()
        while not await holds():
            if self.sim.clock.monotonic() - began >= within:
                raise AssertionError(f"not within {within} s; events: {await self.bus_events()}")
            await self.sleep(0.1)
        return self.sim.clock.monotonic() - began

    async def until_written(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 300.0
    ) -> float:
        """Wait as `until` does, for what only a write to the API server can bring about."""
        seen = -1

        async def is_written_and_holds() -> bool:
            nonlocal seen
            if seen == self.server.revision:
                return False
            seen = self.server.revision
            return await holds()

        return await self.until(is_written_and_holds, within=within)

    async def bus_events(self) -> list[Event]:
        bus = self.connect(Writer.CTL)
        try:
            async with read_events(bus=bus, cluster="default") as entries:
                return [entry.event async for entry in entries if isinstance(entry, RecordedEvent)]
        finally:
            bus.kill()

    def revisions(self, *kinds: str, name: str = "") -> list[Revision]:
        """Return the attempted writes of the role under test, by default without its own Lease."""
        return [
            revision
            for revision in self.server.journal.revisions
            if revision.user == user_of(self.WRITER)
            and (revision.kind in kinds if kinds else revision.kind not in ("Lease", "Event"))
            and name in ("", revision.name)
        ]

    @property
    def written(self) -> list[tuple[str, str, str]]:
        """Return verb, kind and name of each successful write."""
        return [(each.verb, each.kind, each.name) for each in self.revisions() if each.code < 300]

    async def end(self) -> None:
        for role in self.roles:
            await role.kill()
        await self.kill_agents()
        # A leader releases the lease only when none of its writes can take effect any more.
        await self.sleep(20)
        await self.server.stop()


def run_world(
    story: Callable[[W], Coroutine[Any, Any, T]],
    make: Callable[[Sim, Path], W],
    *,
    seed: int = 1,
) -> T:
    """Run a story in a world of its own, and stop everything at its end."""

    async def main(sim: Sim) -> T:
        world = make(sim, folder)
        async with world.cluster:
            try:
                return await story(world)
            finally:
                await world.end()

    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with capture_logs(), tempfile.TemporaryDirectory(prefix="sluice-", dir=memory) as name:
        folder = Path(name)
        return simulate(main, seed=seed)
