"""The scenario of the demo: a fleet comes up, the administrator sets a new driver version, all
nodes are upgraded.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from demo.admin import POOL, DemoAdmin, path_of
from demo.environment import SERVICES, DemoEnvironment
from demo.node_agents import AGENT_KINDS
from demo.output import EventFormatter, VersionNames
from demo.paths import NAMESPACE
from demo.screen import DemoScreen
from libs.bus.events import RecordedEvent, read_events
from libs.bus.port import Bus
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, UpgradeState
from libs.contracts.rollout import RolloutPhase, RolloutStatus
from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.policy.render.rendered import TARGET_ANNOTATION
from libs.runtime.fatal import Fatal

OLD, NEW = "570.86.15", "580.95.05"
POLL_INTERVAL = 0.5
_CONCURRENT_STARTS = 2
"""The cores of a small machine: a start mostly needs the CPU."""
_WORKLOAD_START_SECONDS = 8.0
"""Seconds until the pods run, and the driver agents have reported the pods that use GPUs."""
_LOOK_SECONDS = 3.0
"""Seconds for which the halted rollout is shown."""
_SECONDS_PER_NODE = 150.0
"""The demo fails if a node takes longer, even on the slowest machine."""


class DemoScenario:
    """One run of the scenario, in an environment that is up."""

    def __init__(
        self,
        up: DemoEnvironment,
        *,
        kube: Kube,
        nodes: Sequence[str],
        kill: str,
        bad_driver: bool,
        screen: DemoScreen,
    ) -> None:
        self._up = up
        self._admin = DemoAdmin(kube)
        self._kube = kube
        self._nodes = nodes
        self._kill = kill
        self._bad_driver = bad_driver
        self._must_break_driver = bad_driver
        """Whether the new driver must still be marked as bad, as soon as its label is known."""
        self._screen = screen
        self._clock = up.clock
        self._names = VersionNames()
        self._formatter = EventFormatter(self._names, began=up.clock.now())

    async def install(self) -> None:
        """Install, apply the policy, and start services and machines."""
        self._screen.busy("installing the definitions")
        await self._admin.install()
        self._print_action(f"kubectl apply: ClusterPolicy with driver.version {OLD}")
        self._formatter.wanted = OLD
        await self._admin.apply_policy(OLD)
        self._print_action("start Sluice's services")
        self._screen.busy("starting services", total=len(SERVICES))
        await self._start_all(partial(self._up.start_service, service) for service in SERVICES)
        self._print_action(f"power on {', '.join(self._nodes)}")
        self._screen.busy("starting machines", total=len(self._nodes))
        await self._start_all(partial(self._up.start_machine, node) for node in self._nodes)

    async def wait_until_ready(self) -> None:
        """Wait until the first driver is validated on every node."""
        await self._wait_complete(OLD)

    async def upgrade(self) -> None:
        """Start workloads, change the version, and wait until all nodes are upgraded."""
        self._screen.line(
            "\nUpgrade: users run workloads, and the administrator sets another driver version."
        )
        self._print_action(
            "create service `serve`, which may be evicted, and job `train`, which must finish first"
        )
        await self._admin.create_service("serve", self._nodes[0], gpus=2)
        await self._admin.create_job("train", self._nodes[1 % len(self._nodes)], gpus=4)
        self._screen.busy("starting the workloads")
        await self._clock.sleep(_WORKLOAD_START_SECONDS)
        self._print_action(f"kubectl patch clusterpolicy: driver.version {OLD} -> {NEW}")
        self._formatter.wanted = NEW
        await self._admin.set_driver_version(NEW)
        killing = asyncio.create_task(self._kill_midway(), name="kill midway")
        try:
            if self._bad_driver:
                await self._repair_and_release(await self._wait_halted())
            await self._wait_complete(NEW)
            await killing
        finally:
            killing.cancel()
            await asyncio.wait({killing})

    @asynccontextmanager
    async def print_events(self, bus: Bus) -> AsyncGenerator[None]:
        """Print the events on the bus until the end of the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._print_new_events(bus), name="print events"),
                group.create_task(self._print_waits(), name="print waits"),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _print_new_events(self, bus: Bus) -> None:
        cluster = bus.identity.cluster
        async with read_events(bus=bus, cluster=cluster, follow=True) as entries:
            async for entry in entries:
                if isinstance(entry, RecordedEvent):
                    for line in self._formatter.lines_for(entry.event):
                        self._screen.event(line)

    async def _print_waits(self) -> None:
        while True:
            await self._clock.sleep(POLL_INTERVAL)
            await self._learn_names()
            for line in self._formatter.overdue_lines(self._clock.now()):
                self._screen.event(line)

    async def _learn_names(self) -> None:
        """Learn versions from the DaemonSets, and mark the new driver as bad if it must be."""
        for daemonset in await self._list(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"):
            metadata = daemonset["metadata"]
            label = metadata.get("labels", {}).get(DRIVER_LABEL)
            if not label:
                continue
            containers = daemonset["spec"]["template"]["spec"]["containers"]
            version = containers[0]["image"].rpartition(":")[2].partition("-")[0]
            self._names.learn(label, version)
            if self._must_break_driver and version == NEW:
                self._must_break_driver = False
                await asyncio.to_thread(self._up.paths.bad_drivers.write_text, label)
            self._names.learn(metadata["annotations"][TARGET_ANNOTATION], version)

    async def _wait_for(
        self, condition: Callable[[RolloutStatus], bool], problem: str
    ) -> RolloutStatus:
        """Wait for a condition of the Rollout; raise `Fatal` with the problem after a timeout."""
        until = self._clock.monotonic() + _SECONDS_PER_NODE * len(self._nodes)
        while not condition(status := await self._status()):
            if self._screen.is_silent:
                self._screen.busy(await self._progress(status))
            if self._clock.monotonic() > until:
                raise Fatal(f"{problem} in time: {msgspec.json.encode(status).decode()}")
            await self._clock.sleep(POLL_INTERVAL)
        return status

    async def _repair_and_release(self, halted: RolloutStatus) -> None:
        """Repair the driver, release the halted rollout, and retry the failed nodes."""
        await self._clock.sleep(_LOOK_SECONDS)
        self._print_action(f"repair the image of driver {NEW}: it loads now")
        await asyncio.to_thread(self._up.paths.bad_drivers.unlink, missing_ok=True)
        failures = halted.counts.failed
        nodes = "node" if failures == 1 else "nodes"
        self._print_action(f"kubectl patch rollout: release {NEW} after {failures} failed {nodes}")
        await self._admin.accept_failures(halted.target, failures=failures)
        for node in await self._list("/api/v1/nodes"):
            name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
            if labels.get(STATE_LABEL) == UpgradeState.UPGRADE_FAILED:
                self._print_action(
                    f"kubectl label node {name}: {UpgradeState.UPGRADE_REQUIRED}, to retry it"
                )
                await self._admin.retry_node(name)

    async def _wait_halted(self) -> RolloutStatus:
        problem = f"driver {NEW} loads on no node, but its rollout was not halted"
        return await self._wait_for(lambda status: status.phase == RolloutPhase.HALTED, problem)

    async def _wait_complete(self, version: str) -> None:
        """Wait until the Rollout reports that all nodes run this version."""

        def is_complete(status: RolloutStatus) -> bool:
            is_target = self._names.replace_digests(status.target).startswith(version)
            all_done = status.counts.done == len(self._nodes)
            return is_target and all_done and status.phase == RolloutPhase.COMPLETE

        problem = f"driver {version} did not reach all {len(self._nodes)} nodes"
        await self._wait_for(is_complete, problem)

    async def _progress(self, status: RolloutStatus) -> str:
        """Return how far the rollout is, and what its nodes in flight do."""
        counts = status.counts
        moving = [each.node for each in status.in_flight.values()]
        states = [
            f"{name} {labels[STATE_LABEL]}"
            for node in await self._list("/api/v1/nodes")
            if (name := node["metadata"]["name"]) in moving
            and STATE_LABEL in (labels := node["metadata"].get("labels", {}))
        ]
        return ", ".join([f"{counts.done} of {len(self._nodes)} nodes are done", *states])

    async def _start_all(self, starts: Iterable[Callable[[], Awaitable[None]]]) -> None:
        limit = asyncio.Semaphore(_CONCURRENT_STARTS)

        async def start_limited(start: Callable[[], Awaitable[None]]) -> None:
            async with limit:
                await start()
            self._screen.step()

        async with asyncio.TaskGroup() as group:
            for start in starts:
                group.create_task(start_limited(start), name="start")

    async def _status(self) -> RolloutStatus:
        path = path_of("sluice.dev/v1alpha1", "Rollout", name=POOL)
        try:
            rollout = msgspec.json.decode(await self._kube.request("GET", path))
        except NotFound:
            return RolloutStatus()
        return msgspec.convert(rollout.get("status", {}), RolloutStatus)

    async def _list(self, path: str) -> list[dict[str, Any]]:
        return msgspec.json.decode(await self._kube.request("GET", path))["items"]

    async def _kill_midway(self) -> None:
        """Kill the service or agent of `--kill` while the first node is being upgraded."""
        if not self._kill:
            return
        while not (in_flight := (await self._status()).in_flight):
            await self._clock.sleep(POLL_INTERVAL)
        node = next(iter(in_flight.values())).node
        target = f"the {self._kill} agent of {node}" if self._kill in AGENT_KINDS else self._kill
        self._print_action(f"kill -9 {target} while {node} is being upgraded; it is restarted")
        await self._up.kill(self._kill, node=node)

    def _print_action(self, action: str) -> None:
        self._screen.line(self._formatter.line("administrator", action, at=self._clock.now()))
