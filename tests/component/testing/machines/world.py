"""A simulated cluster with one machine, two drivers and a gate keeper."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.host import driver_files, gate, modules
from libs.host.gate import GateAnswer, GateRequest
from libs.host.holders import containers
from libs.host.linux import InUse
from libs.host.machine import InlineOffload
from libs.policy.installation import DRIVER_ACCOUNT
from libs.testing.cluster.views import JOBS, PODS, Pod
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.machine import SimulatedMachine, process_factory
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import MachineModel, SteadyWorld
from tests.component.policy.strict_writes import apply
from tests.component.testing.cluster.world import NAMESPACE, ClusterWorld
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

APP = "nvidia-driver-daemonset"
OLD, NEW = "570.86.15", "580.95.05"


def driver_sets(**more: Any) -> Mapping[str, dict[str, Any]]:
    """Return the rendered DaemonSet of each version; `more` applies to the newer one only."""
    made: dict[str, dict[str, Any]] = {}
    for version in (OLD, NEW):
        spec = {"repository": "r.example/nvidia", "image": "driver", "version": version}
        policy = cluster_policy(driver={**spec, **(more if version == NEW else {})})
        settings = msgspec.structs.replace(SETTINGS, namespace=NAMESPACE)
        (made[version],) = drivers(Situation([policy], [node("n1")]).rendering(settings))
    return made


class MachineWorld:
    def __init__(
        self, town: ClusterWorld, machine: SimulatedMachine, sets: Mapping[str, dict[str, Any]]
    ) -> None:
        self.town = town
        self.machine = machine
        self._sets = sets

    def label(self, version: str) -> str:
        return self._sets[version]["metadata"]["labels"][DRIVER_LABEL]

    async def select_driver(self, version: str) -> None:
        """Label the node for this driver."""
        await self.town.label("n1", {DRIVER_LABEL: self.label(version)})

    async def driver_pods(self) -> dict[str, Pod]:
        versions = {self.label(version): version for version in self._sets}
        pods = await self.town.pods(APP)
        return {versions[pod.metadata.labels[DRIVER_LABEL]]: pod for pod in pods}

    async def wait_for_driver(self, version: str, *, within: float = 60.0) -> float:
        """Wait until this driver's pod is ready and is the only driver pod."""

        async def so() -> bool:
            pods = await self.driver_pods()
            return list(pods) == [version] and pods[version].ready

        return await self.town.until(so, within=within)

    async def install_first_driver(self, version: str = OLD) -> None:
        """Bring up the first driver of the machine."""
        await self.select_driver(version)
        await self.wait_for_driver(version)

    async def job(self, name: str, *, gpus: int = 2) -> None:
        needs = {"limits": {"nvidia.com/gpu": str(gpus)}}
        container = {"name": "main", "image": "train:1", "resources": needs}
        spec = {"restartPolicy": "Never", "containers": [container]}
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        wanted = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template},
        }
        await self.town.create(JOBS, wanted)
        await self.town.ready(name, 1)

    async def delete_pod(self, pod: Pod, *, grace: int | None = None) -> None:
        meta = pod.metadata
        await self.town.kube.delete(PODS, meta.name, namespace=NAMESPACE, uid=meta.uid, grace=grace)


class FakeGateAgent:
    """The least that a keeper of the gate has to do; one that is careless does less.

    Lets in one pod after the other, each when nothing of the one before is on the machine and its
    modules are out, unless it is to keep those. It lives for one boot.
    """

    def __init__(self, yard: MachineWorld, *, careless: bool = False, keeps: bool = False) -> None:
        self._machine = yard.machine
        self._clock = yard.town.sim.clock
        self._careless = careless
        self._keeps = keeps
        self._admitted = ""
        self.host = yard.machine.host(InlineOffload(), comm="sluice-driver", changes=True)
        self.busy: list[str] = []
        """What the kernel said when it would not."""
        self.admitted: list[float] = []

    async def run(self) -> None:
        """Run until cancelled, or killed with its boot."""
        with suppress(AgentKilled):
            while True:
                await self._look()
                await self._clock.sleep(1.0)

    async def _look(self) -> None:
        known, waiting = await self.host.offload.do(self._at_gate)
        if not waiting or (known and not self._careless and not await self._cleared()):
            return
        pod = waiting[0]
        answer = GateAnswer(pod_uid=pod.pod_uid, label=pod.label, at=self._clock.now())
        await self.host.offload.do(lambda: gate.put_answer(self.host.tree, answer))
        self._admitted = pod.pod_uid
        self.admitted.append(self._clock.monotonic())

    def _at_gate(self) -> tuple[set[str], list[GateRequest]]:
        """Return the admitted pod and the waiting pod."""
        tree = self.host.tree
        known = {one.pod_uid for one in gate.list_answers(tree)}
        return known, [one for one in gate.list_requests(tree) if one.pod_uid not in known]

    async def _cleared(self) -> bool:
        linux, do, tree = self.host.linux, self.host.offload.do, self.host.tree
        assert linux is not None
        if await do(lambda: containers(tree, self._admitted)):
            return False
        if self._keeps:
            return True
        for name in modules.UNLOAD_ORDER:
            answer = await do(lambda name=name: linux.unload(name))
            if isinstance(answer, InUse):
                self.busy.append(answer.why)
                return False
        await do(lambda: linux.unmount_below(driver_files.ROOT))
        await do(lambda: driver_files.clear(tree))
        return True


@asynccontextmanager
async def machine_world(
    sim: Sim, root: Path, *, model: MachineModel | None = None, **more: Any
) -> AsyncGenerator[MachineWorld]:
    """Run a cluster with a Ready node and both DaemonSets, without labels on the node."""
    machines: dict[str, SimulatedMachine] = {}
    model = model or SteadyWorld()
    town = ClusterWorld(sim, model=model, processes=process_factory(machines))
    machines["n1"] = SimulatedMachine(root, name="n1", model=model, env=sim.env("n1"))
    sets = driver_sets(**more)
    wire = town.server.transport(user="person")
    async with town.cluster:
        machines["n1"].join(town.cluster.fleet)
        await apply(wire, account())
        for made in sets.values():
            await apply(wire, made)

        async def settled() -> bool:
            return not (await town.node("n1")).spec.taints

        await town.until(settled)
        yield MachineWorld(town, machines["n1"], sets)


@asynccontextmanager
async def with_gate_agent(
    world: MachineWorld, *, careless: bool = False, keeps: bool = False
) -> AsyncGenerator[FakeGateAgent]:
    keeper = FakeGateAgent(world, careless=careless, keeps=keeps)
    task = asyncio.create_task(keeper.run(), name="keeper")
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


def account() -> dict[str, Any]:
    metadata = {"name": DRIVER_ACCOUNT, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
