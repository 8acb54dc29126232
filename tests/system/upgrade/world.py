"""The product whole on two real nodes: services as processes, agents and drivers as pods."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from libs.bus.port import BusError
from libs.contracts.identities import Writer
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.contracts.queries import WhyAnswer, WhyQuery
from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode
from libs.runtime.clock import SystemClock
from libs.testing.bus.queries import send_query
from libs.testing.child_process import HOST, ChildProcess
from libs.testing.image.testing import DRIVER_IMAGE, DRIVER_REPOSITORY, IMAGE
from libs.testing.nvml.profiles import L40S
from libs.testing.realnodes.ground import Ground, NodeSearch
from libs.testing.realnodes.machine import NodeMachine
from tests.system.nodes.installation import NAMESPACE, POLICY, Installation
from tests.system.nodes.kubectl import Kubectl
from tests.system.upgrade.workload import SERVICE, service

OLD, NEW = "570.86.15", "580.95.05"
NODES: Final = 2
POOL: Final = f"clusterpolicy-{POLICY}"
OURS: Final = f"system:serviceaccounts:{NAMESPACE}"
"""The group of our service accounts."""


class WholeInstallation(Installation):
    """With all services, and agents whose kernel modules are those of the machine's stand-in."""

    _scheduler: ChildProcess | None = None

    async def install(self) -> None:
        """Install everything but the policy, and start NATS and the services."""
        await super().install()
        await self._start(Writer.VALIDATOR_CLUSTER, "services.validator", "cluster")
        port = {"exporter_host": HOST, "exporter_port": "0"}
        await self._start(Writer.TELEMETRY_CLUSTER, "services.telemetry", "cluster", **port)
        await self.replace_scheduler()

    async def replace_scheduler(self, module: str = "services.scheduler") -> None:
        """Start a scheduler; one that runs is killed first."""
        if self._scheduler:
            await self._scheduler.destroy()
        self._scheduler = await self._start(Writer.SCHEDULER, module, "scheduler")

    async def _remove_objects(self) -> None:
        """Leave the objects: the whole ground ends."""


class World:
    """Sluice on real nodes, and what a person does and sees there."""

    def __init__(
        self,
        ground: Ground,
        kubectl: Kubectl,
        installation: WholeInstallation,
        machines: list[NodeMachine],
        archive: Path,
    ) -> None:
        """`archive` has the images of agents and drivers."""
        self.ground = ground
        self.kubectl = kubectl
        self.installation = installation
        self.machines = machines
        self.archive = archive

    async def apply_policy(self, version: str, *, jobs: str = "", **sections: Any) -> None:
        """Create the policy, or change its driver's version; `jobs` selects pods that may finish.

        `sections` are those beside the driver's.
        """
        probe = {
            "initialDelaySeconds": 1,
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 60,
        }
        await self.installation.apply_policy(
            driver={
                "repository": DRIVER_REPOSITORY,
                "image": DRIVER_IMAGE,
                "version": version,
                "startupProbe": probe,
                "upgradePolicy": {
                    "autoUpgrade": True,
                    "maxParallelUpgrades": 1,
                    "maxUnavailable": NODES,
                    "waitForCompletion": {"podSelector": jobs},
                },
            },
            **sections,
        )

    async def rollout(self) -> dict[str, Any]:
        """Return the status of the rollout; empty if there is none yet."""
        found = await self.kubectl.get("rollouts")
        items = found.get("items", [])
        return next(
            (item.get("status", {}) for item in items if item["metadata"]["name"] == POOL), {}
        )

    async def why(self, name: str) -> WhyAnswer | None:
        """Return what the scheduler says of a node; None while none answers."""
        async with self.installation.bus(Writer.CTL) as bus:
            try:
                answer = await send_query(
                    WhyQuery(node=name),
                    bus=bus,
                    clock=SystemClock(),
                    cluster=bus.identity.cluster,
                    service=Writer.SCHEDULER,
                    timeout=5.0,
                )
            except BusError:
                return None
        return answer if isinstance(answer, WhyAnswer) else None

    async def is_in_place(self, machine: NodeMachine) -> bool:
        """Return whether the scheduler says that a node needs nothing, its proof included."""
        answer = await self.why(machine.node.name)
        return answer is not None and answer.in_place

    async def until_waiting(self, name: str, code: WaitCode, *words: str, within: float) -> str:
        """Wait until a node waits for this, in these words; return all that is said."""

        async def waits() -> bool:
            nonlocal detail
            answer = await self.why(name)
            wait = None if answer is None else answer.wait
            detail = "" if wait is None else wait.detail
            return wait is not None and wait.code == code and all(word in detail for word in words)

        detail = ""
        await self.until(waits, within=within)
        return detail

    async def until_halted(self, *, within: float) -> str:
        """Wait until the rollout is halted; return its target."""

        async def is_halted() -> bool:
            return (await self.rollout()).get("phase") == RolloutPhase.HALTED

        await self.until(is_halted, within=within)
        return (await self.rollout())["target"]

    async def release(self, target: str, failed: str) -> None:
        """Accept one failure of a target, and request another attempt on the node that failed."""
        accepted = {"spec": {"release": {"target": target, "failures": 1}}}
        patch = ("patch", f"rollout/{POOL}", "--type=merge", "--patch", json.dumps(accepted))
        await self.kubectl.run(*patch)
        await self.retry(failed)

    async def retry(self, name: str) -> None:
        """Request another attempt on a node."""
        label = f"{STATE_LABEL}={UpgradeState.UPGRADE_REQUIRED.value}"
        await self.kubectl.run("label", f"node/{name}", label, "--overwrite")

    async def states(self) -> dict[str, str]:
        """Return the states of all nodes, as their labels say."""
        nodes = (await self.kubectl.get("nodes"))["items"]
        return {
            node["metadata"]["name"]: node["metadata"]["labels"].get(STATE_LABEL, "")
            for node in nodes
        }

    def machine(self, name: str) -> NodeMachine:
        """Return the machine of a node."""
        return next(each for each in self.machines if each.node.name == name)

    async def until_all_run(self, version: str, *, within: float) -> None:
        """Wait until the rollout is complete, and every node has this driver and its proof."""

        async def all_run() -> bool:
            status = await self.rollout()
            done = status.get("counts", {}).get("done", 0)
            loaded = [machine.kernel.version() for machine in self.machines]
            return (
                status.get("phase") == RolloutPhase.COMPLETE
                and done == len(self.machines)
                and loaded == [version] * len(self.machines)
                and all([await self.is_in_place(machine) for machine in self.machines])
            )

        await self.until(all_run, within=within)

    async def until(self, condition: Callable[[], Awaitable[bool]], *, within: float) -> None:
        """Wait for a condition; fail with what a person would look at."""
        deadline = asyncio.get_running_loop().time() + within
        while not await condition():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(await self.story())
            await asyncio.sleep(0.5)

    async def run_service(self) -> None:
        """Create a service with a pod per node, and wait until all run."""
        for machine in self.machines:
            gpus = len(machine.gpus.gpus)
            await self.kubectl.wait(
                rf"jsonpath={{.status.allocatable.nvidia\.com/gpu}}={gpus}",
                f"node/{machine.node.name}",
            )
        await self.kubectl.apply(*service(len(self.machines)))
        await self.kubectl.wait("condition=Available", f"deployment/{SERVICE}")

    async def cordoned(self) -> list[str]:
        """Return the names of cordoned nodes."""
        nodes = (await self.kubectl.get("nodes"))["items"]
        return [
            node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable", False)
        ]

    async def story(self) -> str:
        """Return what a person would look at."""
        look: list[tuple[str, ...]] = [
            ("get", "nodes", "-o", "wide", "--show-labels"),
            ("get", "pods", "--all-namespaces", "-o", "wide"),
            ("get", "resourceclaims,resourceslices", "--all-namespaces", "-o", "wide"),
            ("get", "rollouts", "-o", "yaml"),
            ("get", "clusterpolicies", "-o", "jsonpath={.items[*].status}"),
            ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
        ]
        texts = [await self.kubectl.run(*words) for words in look]
        on_nodes = ("pods", "--namespace", NAMESPACE, "--field-selector=spec.nodeName!=")
        for pod in (await self.kubectl.get(*on_nodes))["items"]:
            name = pod["metadata"]["name"]
            logs = ("logs", "--namespace", NAMESPACE, name, "--tail=25", "--ignore-errors")
            said = await self.kubectl.run(*logs, "--all-containers")
            texts.append(f"=== {name}:\n{said}")
        return "\n".join(texts)


@asynccontextmanager
async def world_of(search: NodeSearch, archive: Path, folder: Path) -> AsyncGenerator[World]:
    """Start everything but the policy, with the images of the archive; remove it at the end."""
    async with AsyncExitStack() as stack:
        ground = await Ground.start(search, nodes=NODES, reads_of=[OURS])
        stack.push_async_callback(ground.stop)
        kubectl = Kubectl(ground.kube)
        for node in ground.nodes:
            await kubectl.wait("create", f"node/{node.name}")
            await kubectl.wait("condition=Ready", f"node/{node.name}")
        await asyncio.gather(*(node.import_image(archive) for node in ground.nodes))
        machines = [await NodeMachine.insert(node, L40S) for node in ground.nodes]
        installation = WholeInstallation(stack, ground, kubectl, folder, image=IMAGE)
        await installation.install()
        yield World(ground, kubectl, installation, machines, archive)
