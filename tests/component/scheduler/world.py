"""A world for tests of the scheduler: machines with all agents, and driver pods.

The test plays the driver's cluster role: it applies the DaemonSets that a policy renders to.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase, Revision
from libs.contracts.node import REQUESTED_ANNOTATION, STATE_LABEL, NodeRecord
from libs.contracts.queries import (
    PoolStatus,
    StatusAnswer,
    StatusQuery,
    WaitReason,
    WhyAnswer,
    WhyQuery,
)
from libs.contracts.reports import Evidence
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import LEASES
from libs.testing.bus.queries import send_query
from libs.testing.cluster.views import REPLICA_SETS
from libs.testing.stage.worlds import SteadyWorld
from services.scheduler import resources
from services.scheduler.role import LEASE
from tests.builders.objects import replica_set
from tests.component import world
from tests.component.processes import AGENTS, NAMESPACE, Process, user_of
from tests.support import played_by
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

T = TypeVar("T")

USER = user_of(Writer.SCHEDULER)
POLICY = "cluster-policy"
POOL = f"clusterpolicy-{POLICY}"
OLD, NEW, OTHER = "570.86.15", "580.95.05", "575.57.08"
DEPLOYED = {
    "kubernetes.io/os": "linux",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
}
STATES = [
    "upgrade-required",
    "pod-deletion-required",
    "pod-restart-required",
    "validation-required",
    "upgrade-done",
]
"""The states that an upgrade of a node with pods writes."""
FAST = SteadyWorld(
    pull_seconds=1.0,
    ready_seconds=0.5,
    unload_seconds=0.5,
    load_seconds=0.5,
    validation_seconds=0.5,
)
LABEL = f'metadata.labels["{STATE_LABEL}"]'
CORDON = "spec.unschedulable"
WAITING = "sluice_scheduler_nodes_waiting"


class World(world.World):
    WRITER = Writer.SCHEDULER

    async def install_fleet(self, *nodes: str, version: str = OLD, **upgrade: Any) -> None:
        """Install everything but the scheduler, with a policy, and agents on these nodes."""
        await self.install()
        await self.add_nodes(*nodes)
        await self.apply_policy(version, **upgrade)

    async def add_nodes(
        self, *names: str, labels: Mapping[str, str] | None = None, **machine: Any
    ) -> None:
        """Add machines with two GPUs and all agents."""
        for name in names:
            all_labels = {**node(name).labels, **DEPLOYED, **(labels or {})}
            self.add_machine(name, labels=all_labels, gpus=2, **machine)
        await self.sleep(2)
        await self.start_agents(*names)

    async def start_agents(self, *names: str) -> None:
        """Start all agents of these machines, whose Nodes must exist."""
        for name in names:
            for writer in AGENTS:
                await self.start_agent(name, writer)

    async def reboot(self, name: str, *, off: float = 30) -> None:
        await self.power_off(name)
        await self.sleep(off)
        self.machines[name].power_on()
        await self.start_agents(name)

    async def complete_first_rollout(self, *nodes: str) -> tuple[Process, str]:
        """Bring up the nodes with the first driver; return the scheduler and the target."""
        await self.install_fleet(*nodes)
        process = self.start()
        await self.wait_until_done(*nodes)
        return process, await self.target()

    async def apply_policy(
        self, version: str, *, manager: Mapping[str, str] | None = None, **upgrade: Any
    ) -> None:
        """Apply the policy and the driver DaemonSets that it renders to.

        `manager` has the variables of the driver manager.
        """
        env = [{"name": name, "value": value} for name, value in (manager or {}).items()]
        driver = {"repository": "r.example/nvidia", "image": "driver", "version": version}
        policy = cluster_policy(
            driver={
                **driver,
                "manager": {"env": env},
                "upgradePolicy": {"autoUpgrade": True, **upgrade},
            }
        )
        applied = await self.apply(policy)
        facts = [node(name) for name in self.machines]
        situation = Situation([{**policy, "metadata": applied["metadata"]}], facts)
        for daemon_set in drivers(situation.rendering(SETTINGS)):
            await self.apply(daemon_set)

    async def start_job(self, name: str, node: str, *, gpus: int = 2) -> None:
        """Start a pod with GPUs on the node; a ReplicaSet recreates it."""
        there = {"kubernetes.io/hostname": node}
        job = replica_set(name, image="train:1", gpus=gpus, nodeSelector=there)
        await self.kube.create(REPLICA_SETS, job, namespace="default")
        await self.sleep(5)

    async def move_lease(self, to: Process) -> None:
        """Release the lease, unknown to its holder, until another process leads."""
        body = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
        path = LEASES.path(namespace=NAMESPACE, name=LEASE)
        while not to.value("sluice_scheduler_leading"):
            await self.kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            await self.sleep(3)

    def block_preflight(self, *nodes: str) -> Callable[[], None]:
        """Let a process outside of pods hold GPUs, which a preflight finds; return its end."""
        pids = {name: self.machines[name].start_process(0) for name in nodes}

        def end() -> None:
            for name, pid in pids.items():
                self.machines[name].end_process(pid)

        return end

    def journalled(self, name: str, command: str, phase: EntryPhase, detail: str = "") -> int:
        """Count such entries in the journal of the node's driver agent."""
        return sum(
            (entry.command, entry.phase) == (command, phase) and entry.detail.startswith(detail)
            for entry in self.journals[name, Writer.DRIVER]
        )

    def swaps(self, name: str) -> int:
        return self.journalled(name, "swap", EntryPhase.STARTED)

    def unloads(self, name: str) -> int:
        return self.journalled(name, "swap", EntryPhase.STEP, "unload: ok")

    async def node(self, name: str) -> resources.Node:
        return await self.kube.get(resources.NODES, name)

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Annotate a node, as a person does."""
        await self.patch(resources.NODES, name, {"metadata": {"annotations": annotations}})

    async def request_upgrade(self, name: str) -> None:
        await self.annotate(name, {REQUESTED_ANNOTATION: "true"})

    async def state(self, name: str) -> str:
        """Return the node's upgrade state."""
        return (await self.node(name)).metadata.labels.get(STATE_LABEL, "")

    async def record(self, name: str) -> NodeRecord:
        record = (await self.node(name)).record
        assert isinstance(record, NodeRecord)
        return record

    async def evidence(self, name: str) -> Evidence:
        """Return the evidence in the record of the node."""
        evidence = (await self.record(name)).evidence
        assert evidence is not None
        return evidence

    def driver_version(self, name: str) -> str:
        """Return the version of the driver that the machine runs; empty without one."""
        driver = self.machines[name].driver
        return "" if driver is None else driver.version

    async def until_state(self, name: str, state: str, *, within: float = 300.0) -> None:
        async def reached() -> bool:
            return await self.state(name) == state

        await self.until_written(reached, within=within)

    async def wait_until_done(
        self, *nodes: str, target: str = "", before: str = "", within: float = 600.0
    ) -> float:
        """Wait until the Rollout is complete, on this target, or on another one than `before`."""

        async def done() -> bool:
            rollouts = (await self.kube.list_page(resources.ROLLOUTS)).items
            if not rollouts:
                return False
            status = rollouts[0].status
            if status.target == before or target not in ("", status.target):
                return False
            return status.phase == "Complete" and status.counts.done == len(nodes)

        return await self.until_written(done, within=within)

    async def rollout(self) -> resources.Rollout:
        return await self.kube.get(resources.ROLLOUTS, POOL)

    async def target(self) -> str:
        return (await self.rollout()).status.target

    async def ask(self, query: Any, *, timeout: float = 10.0) -> Any:
        bus = self.connect(Writer.CTL)
        ports: Any = {"bus": bus, "clock": self.sim.clock, "cluster": "default"}
        try:
            return await send_query(query, **ports, service="scheduler", timeout=timeout)
        finally:
            bus.kill()

    async def status(self) -> StatusAnswer:
        answer = await self.ask(StatusQuery())
        assert isinstance(answer, StatusAnswer)
        return answer

    async def pool_status(self) -> PoolStatus:
        (pool,) = (await self.status()).pools
        return pool

    async def why(self, name: str) -> WhyAnswer:
        answer = await self.ask(WhyQuery(node=name))
        assert isinstance(answer, WhyAnswer)
        return answer

    async def wait_of(self, name: str) -> WaitReason:
        """Return what the node waits for."""
        wait = (await self.why(name)).wait
        assert wait is not None
        return wait

    async def kube_events(self) -> list[tuple[str, str]]:
        """Return the Events about upgrades in order: the object's name and the message."""
        events = await self.events_of("GPUDriverUpgrade")
        return [(event["involvedObject"]["name"], event["message"]) for event in events]

    async def events_of(self, reason: str) -> list[dict[str, Any]]:
        """Return the Events with this reason, in order."""
        body = await self.kube.request("GET", "/api/v1/namespaces/default/events")
        events = [
            event for event in msgspec.json.decode(body)["items"] if event["reason"] == reason
        ]
        return sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def node_writes(self, name: str = "") -> list[Revision]:
        return self.revisions("Node", name=name)

    def committed(self, name: str = "", *, since: int = 0) -> list[Revision]:
        """Return the writes to Nodes that changed something."""
        return [
            revision
            for revision in self.node_writes(name)
            if revision.code < 300 and revision.changed and revision.revision > since
        ]


def most_cordoned(revisions: Collection[Revision]) -> int:
    """Return how many nodes were cordoned at once."""
    cordoned = set[str]()
    most = 0
    for revision in revisions:
        if CORDON in revision.changed:
            change = cordoned.add if revision.changed[CORDON][1] else cordoned.discard
            change(revision.name)
            most = max(most, len(cordoned))
    return most


def play(story: Callable[[World], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
    return world.run_world(story, lambda sim, folder: World(sim, folder, FAST), seed=seed)


in_world = played_by(play)
