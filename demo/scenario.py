"""What is played: a fleet comes up, a person wants another driver, the fleet moves.

It says what people do and waits for what comes of it; how that comes about is the services' affair.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from demo.admin import POOL, DemoAdmin, path_of
from demo.environment import SERVICES, DemoEnvironment
from demo.event_lines import EventFormatter, VersionNames
from demo.node_agents import AGENT_KINDS
from demo.paths import NAMESPACE
from libs.bus.events import RecordedEvent, read_events
from libs.bus.port import Bus, FromSequence
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, UpgradeState
from libs.contracts.rollout import RolloutPhase, RolloutStatus
from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.policy.render.rendered import TARGET_ANNOTATION
from libs.runtime.fatal import Fatal

OLD, NEW = "570.86.15", "580.95.05"
POLL_INTERVAL = 0.5
_STARTS = 2
_AT_WORK = 8.0
"""Seconds after which people's jobs run, and the driver agents have said who has GPUs."""
_TO_LOOK = 3.0
"""Seconds in which somebody would have seen what is there."""
_PER_NODE = 150.0
"""Seconds after which a node that has not moved is an error of the demo, on the slowest machine."""

PrintLine = Callable[[str], None]


class DemoScenario:
    """Played once, on premises that are up."""

    def __init__(
        self,
        up: DemoEnvironment,
        *,
        person: DemoAdmin,
        kube: Kube,
        nodes: Sequence[str],
        kill: str,
        bad_driver: bool,
        say: PrintLine,
    ) -> None:
        self._up = up
        self._person = person
        self._kube = kube
        self._nodes = nodes
        self._kill = kill
        self._bad_driver = bad_driver
        self._spoils = bad_driver
        """Whether the new driver, as soon as it has a name, is still to be made a bad one."""
        self._say = say
        self._clock = up.clock
        self._names = VersionNames()
        self._teller = EventFormatter(self._names, began=up.clock.now())

    async def install(self) -> None:
        """Install, and say what is wanted; services and machines come up in whatever order."""
        await self._person.install()
        self._did(f"kubectl apply a ClusterPolicy with driver.version {OLD}")
        self._teller.wanted = OLD
        await self._person.apply_policy(OLD)
        self._did("start Sluice's services")
        await _started(partial(self._up.start_service, part) for part in SERVICES)
        self._did(f"switch on {', '.join(self._nodes)}")
        await _started(partial(self._up.start_machine, node) for node in self._nodes)

    async def wait_until_ready(self) -> None:
        """Until the first driver is proven on every node."""
        await self._complete(OLD)

    async def upgrade(self) -> None:
        """Jobs run, a person patches the version, and every node moves."""
        self._say("\nThe fleet moves: people compute on it, and somebody wants another driver.")
        self._did("start `serve`, which may be evicted, and `train`, for whose end we wait")
        await self._person.create_service("serve", self._nodes[0], gpus=2)
        await self._person.create_job("train", self._nodes[1 % len(self._nodes)], gpus=4)
        await self._clock.sleep(_AT_WORK)
        self._did(f"kubectl patch clusterpolicy: driver.version {OLD} -> {NEW}")
        self._teller.wanted = NEW
        await self._person.set_driver_version(NEW)
        killing = asyncio.create_task(self._kill_midway(), name="kill midway")
        try:
            if self._bad_driver:
                await self._released(await self._halted())
            await self._complete(NEW)
            await killing
        finally:
            killing.cancel()
            await asyncio.wait({killing})

    @asynccontextmanager
    async def print_events(self, bus: Bus) -> AsyncGenerator[None]:
        """What is said on the bus is told, as long as this lasts."""
        async with asyncio.TaskGroup() as group:
            telling = [
                group.create_task(self._hear(bus), name="hear"),
                group.create_task(self._tell_waits(), name="tell waits"),
            ]
            try:
                yield
            finally:
                for task in telling:
                    task.cancel()

    async def _hear(self, bus: Bus) -> None:
        cluster = bus.identity.cluster
        async with read_events(
            bus=bus, cluster=cluster, start=FromSequence(), follow=True
        ) as entries:
            async for entry in entries:
                if isinstance(entry, RecordedEvent):
                    for line in self._teller.lines_for(entry.event):
                        self._say(line)

    async def _tell_waits(self) -> None:
        while True:
            await self._clock.sleep(POLL_INTERVAL)
            await self._learn_names()
            for line in self._teller.overdue_lines(self._clock.now()):
                self._say(line)

    async def _learn_names(self) -> None:
        for each in await self._items(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"):
            metadata = each["metadata"]
            label = metadata.get("labels", {}).get(DRIVER_LABEL)
            if not label:
                continue
            containers = each["spec"]["template"]["spec"]["containers"]
            version = containers[0]["image"].rpartition(":")[2].partition("-")[0]
            self._names.learn(label, version)
            if self._spoils and version == NEW:
                self._spoils = False
                await asyncio.to_thread(self._up.paths.bad_drivers.write_text, label)
            self._names.learn(metadata["annotations"][TARGET_ANNOTATION], version)

    async def _halted(self) -> RolloutStatus:
        """Wait until no node is started on the new driver any more; what the Rollout says then."""
        until = self._clock.monotonic() + _PER_NODE * len(self._nodes)
        while (status := await self._status()).phase != RolloutPhase.HALTED:
            if self._clock.monotonic() > until:
                raise Fatal(
                    f"driver {NEW} loads on no node, and after so long its rollout is not halted:"
                    f" {msgspec.json.encode(status).decode()}"
                )
            await self._clock.sleep(POLL_INTERVAL)
        return status

    async def _released(self, halted: RolloutStatus) -> None:
        """The cause is mended, and a person says that the rollout may go on."""
        await self._clock.sleep(_TO_LOOK)
        self._did(f"mend the image of driver {NEW}: it loads now")
        await asyncio.to_thread(self._up.paths.bad_drivers.unlink, missing_ok=True)
        failures = halted.counts.failed
        self._did(f"kubectl patch rollout: release {NEW}, of which {failures} failed: go on")
        await self._person.accept_failures(halted.target, failures=failures)
        for node in await self._items("/api/v1/nodes"):
            name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
            if labels.get(STATE_LABEL) == UpgradeState.UPGRADE_FAILED:
                self._did(f"kubectl label node {name}: {UpgradeState.UPGRADE_REQUIRED}: once more")
                await self._person.retry_node(name)

    async def _complete(self, version: str) -> None:
        """Wait until the Rollout says that all nodes run what the policy wants now."""
        until = self._clock.monotonic() + _PER_NODE * len(self._nodes)
        while True:
            status = await self._status()
            wanted = self._names.replace_digests(status.target).startswith(version)
            done = status.counts.done == len(self._nodes)
            if wanted and done and status.phase == RolloutPhase.COMPLETE:
                return
            if self._clock.monotonic() > until:
                raise Fatal(
                    f"driver {version} is not on all {len(self._nodes)} nodes yet, and the demo"
                    f" waits no longer: {msgspec.json.encode(status).decode()}"
                )
            await self._clock.sleep(POLL_INTERVAL)

    async def _status(self) -> RolloutStatus:
        path = path_of("sluice.dev/v1alpha1", "Rollout", name=POOL)
        try:
            found = msgspec.json.decode(await self._kube.request("GET", path))
        except NotFound:
            return RolloutStatus()
        return msgspec.convert(found.get("status", {}), RolloutStatus)

    async def _items(self, path: str) -> list[dict[str, Any]]:
        return msgspec.json.decode(await self._kube.request("GET", path))["items"]

    async def _kill_midway(self) -> None:
        if not self._kill:
            return
        while not (going := (await self._status()).in_flight):
            await self._clock.sleep(POLL_INTERVAL)
        node = next(iter(going.values())).node
        where = f" of {node}" if self._kill in AGENT_KINDS else ""
        self._did(f"kill -9 {self._kill}{where}, while {node} is on its way; another is started")
        await self._up.kill(self._kill, node=node)

    def _did(self, what: str) -> None:
        self._say(self._teller.line("a person", what, at=self._clock.now()))


async def _started(starts: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """As many at once as there are cores for on a small machine: a start is mostly computing."""
    room = asyncio.Semaphore(_STARTS)

    async def within(start: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await start()

    async with asyncio.TaskGroup() as group:
        for start in starts:
            group.create_task(within(start), name="start")
