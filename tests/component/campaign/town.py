"""A whole system in virtual time: every service, a simulated cluster, bus, and machines.

Discovery's cluster role is not part of it: the labels that it would write are on the Nodes from the
start. Nothing is judged here.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from structlog.testing import capture_logs

from sluice.bus.chronicle import Recorded, read
from sluice.bus.local import Faults as BusFaults
from sluice.bus.local import LocalServer
from sluice.bus.local.bus import LocalBus
from sluice.bus.permissions import permissions
from sluice.bus.port import Bus, FromSequence
from sluice.contracts.events import Event
from sluice.contracts.identities import Identity, Writer
from sluice.contracts.journal import Entry, Revision
from sluice.contracts.node import DRIVER_LABEL
from sluice.demo.station import Station
from sluice.driver.cluster.role import LEASE as DRIVER_LEASE
from sluice.host.access import Inline
from sluice.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from sluice.kube.errors import NotFound
from sluice.kube.resources import LEASES, Resource
from sluice.policy.crds import definitions
from sluice.policy.installation.whole import installation
from sluice.policy.rules import RULES
from sluice.rollout.world import Model
from sluice.runtime.service import Service
from sluice.scheduler import things
from sluice.scheduler.role import LEASE as SCHEDULER_LEASE
from sluice.sim.apiserver.server import ApiServer
from sluice.sim.cluster.cluster import Cluster
from sluice.sim.cluster.kinds import REPLICA_SETS
from sluice.sim.loop import Sim
from sluice.sim.loop import run as simulate
from sluice.sim.machines.machine import Machine
from tests.component.campaign.roles import NAMESPACE, ROLES, Ground, Role
from tests.component.policy.strictly import path_of, sent
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

T = TypeVar("T")

RBAC = "rbac.authorization.k8s.io/v1"
POOL = "clusterpolicy-cluster-policy"
STATE = "nvidia.com/gpu-driver-upgrade-state"
RESTARTS = 5.0
"""Seconds until a cluster role that has ended is started again, as its Deployment would."""


def told_by_discovery(name: str) -> dict[str, str]:
    """The labels of a node with GPUs, as far as agents and policies select by them."""
    return {
        **node(name).labels,
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.deploy.operator-validator": "true",
    }


class Town:
    """What a story has in its hands."""

    def __init__(
        self, sim: Sim, root: Path, *, model: Model, faults: BusFaults | None = None
    ) -> None:
        self.sim = sim
        self.root = root
        self.model = model
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=RULES
        )
        self.bus = LocalServer(clock=sim.clock, random=sim.random_for("bus"), faults=faults)
        self.cluster = Cluster(
            self._kube_for,
            model=model,
            clock=sim.clock,
            ids=sim.ids,
            random=sim.random_for("cluster"),
        )
        self.kube = self._kube_for("person", "kubectl")
        self.stations: dict[str, Station] = {}
        self.roles: list[Role] = []
        self.failures: list[str] = []
        """Cluster roles that ended by themselves, and why."""
        self.target = ""
        self.label = ""
        """Of the driver that people want now."""
        self._ground = Ground(sim, server=self.server, bus=self.bus)
        self._tasks: list[asyncio.Task[None]] = []
        self._kept: dict[Writer, Role] = {}

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    # What whoever installs Sluice does.

    async def install(self) -> None:
        """Accounts, leases and kinds; nothing of ours runs yet."""
        for obj in installation(NAMESPACE):
            if obj["apiVersion"] != RBAC:
                await self.apply(obj)
        for lease in (SCHEDULER_LEASE, DRIVER_LEASE):
            await self.kube.create(LEASES, {"metadata": {"name": lease}}, namespace=NAMESPACE)
        for definition in definitions().values():
            await self.apply(definition)
        await self.sleep(1)

    def machine(self, name: str) -> None:
        """Another one, switched on: its kubelet joins the cluster."""
        sim = self.sim
        machine = Machine(
            self.root / name,
            name=name,
            model=self.model,
            clock=sim.clock,
            ids=sim.ids,
            random=sim.random_for(name),
        )
        station = self.stations[name] = Station(
            machine,
            kube_for=self._kube_for,
            join=self._join,
            cut=_cut,
            model=self.model,
            access=Inline(),
            clock=sim.clock,
            ids=sim.ids,
            random_for=sim.random_for,
            labels=told_by_discovery(name),
        )
        self._tasks.append(asyncio.create_task(station.run(), name=f"machine {name}"))

    async def _join(self, service: Service, identity: Identity) -> Bus:
        return await service.enter("bus", _connection(self.bus, identity))

    async def want(self, version: str, **upgrade: Any) -> None:
        """A person's policy."""
        driver = {"repository": "r.example/nvidia", "image": "driver", "version": version}
        policy = cluster_policy(
            driver={**driver, "upgradePolicy": {"autoUpgrade": True, **upgrade}},
            dcgmExporter={"enabled": False},
            devicePlugin={"enabled": False},
        )
        answer = await self.apply(policy)
        whole = {**policy, "metadata": answer["metadata"]}
        (made,) = drivers(Situation([whole], [node("any")]).rendering(SETTINGS))
        self.target = made["metadata"]["annotations"]["sluice.dev/target"]
        self.label = made["metadata"]["labels"][DRIVER_LABEL]

    async def apply(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """`kubectl apply --server-side`; uids are the server's to give."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
        status, _, answer = await sent(
            self.server.transport(user="person"),
            "PATCH",
            path_of(dict(obj)),
            {**obj, "metadata": metadata},
            content=APPLY_PATCH,
            force="true",
            fieldManager="kubectl",
        )
        assert status in (200, 201), answer
        return answer

    async def change(self, resource: Resource[Any], name: str, change: Any) -> None:
        """A person merges this into it, whatever its revision."""
        path = resource.path(name=name)
        query = {"fieldManager": "kubectl"}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def service_on(self, name: str, node: str, *, gpus: int = 2) -> None:
        """Somebody computes there, and would go on elsewhere."""
        needs = {"limits": {"nvidia.com/gpu": str(gpus)}}
        container = {"name": "main", "image": "train:1", "resources": needs}
        spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
        wanted = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        }
        await self.kube.create(REPLICA_SETS, wanted, namespace="default")

    # Cluster roles.

    def start(self, writer: Writer) -> Role:
        """Another process of the role."""
        role = Role(self._ground, writer, number=len(self.roles) + 1)
        self.roles.append(role)
        return role

    def keep(self, *writers: Writer) -> None:
        """One process of each, and another one whenever it has ended."""
        for writer in writers or ROLES:
            self._tasks.append(asyncio.create_task(self._keep(writer), name=f"keeps {writer}"))

    async def _keep(self, writer: Writer) -> None:
        while True:
            role = self._kept[writer] = self.start(writer)
            await asyncio.wait({role.task})
            # While the bus is away a role cannot start; its Deployment tries again.
            if role.failure and "Away: " not in role.failure:
                self.failures.append(f"{role.name}: {role.failure}")
            await self.sleep(RESTARTS)

    def kept(self, writer: Writer) -> Role:
        """The process that runs now, or ran last."""
        return self._kept[writer]

    def later(self, doing: Coroutine[Any, Any, None]) -> None:
        """It goes on beside the story, and ends with it at the latest."""
        self._tasks.append(asyncio.create_task(doing, name="later"))

    # What is there.

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float, every: float = 1.0
    ) -> float | None:
        """Wait until it holds; the virtual seconds that took, or None."""
        begun = self.sim.clock.monotonic()
        while not await holds():
            if self.sim.clock.monotonic() - begun >= within:
                return None
            await self.sleep(every)
        return self.sim.clock.monotonic() - begun

    async def rollout(self) -> things.Rollout | None:
        """Of the only pool."""
        try:
            return await self.kube.get(things.ROLLOUTS, POOL)
        except NotFound:
            return None

    async def in_place(self) -> bool:
        """Whether the rollout of what is wanted now says that every node is done."""
        rollout = await self.rollout()
        if rollout is None or rollout.status.target != self.target:
            return False
        counts = rollout.status.counts
        return rollout.status.phase == "Complete" and counts.done == len(self.stations)

    def revisions(self) -> tuple[Revision, ...]:
        """What the API server has written down."""
        return tuple(self.server.journal.revisions)

    async def entries(self) -> tuple[Entry, ...]:
        """What all agents have."""
        found: list[Entry] = []
        for station in self.stations.values():
            found += await station.entries()
        return tuple(found)

    async def events(self) -> tuple[Event, ...]:
        """What was said on the bus."""
        bus = self.bus.connect(Identity(writer=Writer.CTL))
        try:
            async with read(bus=bus, cluster="default", start=FromSequence()) as entries:
                return tuple([one.event async for one in entries if isinstance(one, Recorded)])
        finally:
            bus.kill()

    async def end(self) -> None:
        """Everything stops where it stands."""
        for task in self._tasks:
            task.cancel()
        for role in self.roles:
            await role.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # Who led lets go of the lease only when nothing of his can be carried out any more.
        await self.sleep(20)
        await self.server.stop()
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _cut(bus: Bus) -> None:
    assert isinstance(bus, LocalBus)
    bus.kill()


@asynccontextmanager
async def _connection(bus: LocalServer, identity: Identity) -> AsyncGenerator[LocalBus]:
    made = bus.connect(identity, may=permissions(identity))
    try:
        yield made
    finally:
        made.kill()


def play(
    story: Callable[[Town], Coroutine[Any, Any, T]],
    *,
    seed: int,
    model: Model,
    faults: BusFaults | None = None,
) -> T:
    """A story in a town of its own; what it started is stopped."""

    async def main(sim: Sim) -> T:
        with tempfile.TemporaryDirectory(prefix="sluice-town-", dir=_memory()) as folder:
            town = Town(sim, Path(folder), model=model, faults=faults)
            async with town.cluster:
                try:
                    return await story(town)
                finally:
                    await town.end()

    # What is logged by whoever meets a fault is no part of the story.
    logging.disable(logging.CRITICAL)
    try:
        with capture_logs():
            return simulate(main, seed=seed)
    finally:
        logging.disable(logging.NOTSET)


def _memory() -> str | None:
    """A folder in memory, where there is one: several times as fast as one on a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
