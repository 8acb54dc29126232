"""One run of the storm: upgrades of the demo's fleet under faults, with a hostile node in it.

The driver changes its version again and again. All nodes but the hostile one must finish each
upgrade, no probe may restart a process, and the audit must find nothing.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar

import msgspec

from demo.admin import MANAGER, POLICY, POOL, DemoAdmin, path_of
from demo.environment import SERVICES, DemoEnvironment, bus_client, demo_environment, kube_client
from demo.paths import NAMESPACE
from demo.verdict import (
    READER,
    DemoVerdict,
    DriverlessNodes,
    events_of,
    judge_run,
    observe_reports,
    verdict_lines,
)
from libs.bus.port import BusError
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import KubeError
from tools.storm.faults import MAX_UNAVAILABLE, Faults, agent_folder, small_disk
from tools.storm.hostile_node import HostileNode
from tools.storm.probe_monitor import ProbeMonitor

T = TypeVar("T")

VERSIONS: Final = ("570.86.15", "580.95.05", "580.105.08")
_POLL_SECONDS: Final = 1.0
_CALM_SECONDS: Final = 300.0
"""How long the last upgrade may take after the faults have ended."""


class StormResult(msgspec.Struct, frozen=True, kw_only=True):
    faults: int
    upgrades: int
    """How often all nodes but the hostile one reached another version."""
    messages: int
    """Messages that the hostile node sent to the bus."""
    requests: int
    """HTTP requests that it sent."""
    probes: int
    problems: tuple[str, ...]
    verdict: DemoVerdict

    @property
    def is_ok(self) -> bool:
        return self.verdict.is_ok and not self.problems


class Storm:
    """A storm over an environment that is up."""

    def __init__(
        self,
        up: DemoEnvironment,
        kube: Kube,
        *,
        nodes: Sequence[str],
        faults: Faults,
        print_line: Callable[[str], None],
    ) -> None:
        """The first of the nodes is hostile."""
        self._up = up
        self._kube = kube
        self._nodes = nodes
        self._print_line = print_line
        self._faults = faults
        self._hostile = HostileNode(
            nodes[0],
            nats_url=up.nats.url,
            token_of=up.paths.token,
            pages=lambda: [*self._urls("metrics").values()],
            random=random.Random(up.seed),
        )
        self._probes = ProbeMonitor(lambda: self._urls("livez"), stopped=faults.stopped)
        self._version = 0
        self.upgrades = 0

    async def install(self) -> None:
        """Apply the policy, and start services and machines one after another."""
        admin = DemoAdmin(self._kube)
        await admin.apply_policy(VERSIONS[0])
        await self._patch_driver({"upgradePolicy": {"maxUnavailable": MAX_UNAVAILABLE}})
        for service in SERVICES:
            await self._up.start_service(service)
        for node in self._nodes:
            await self._up.start_machine(node)
        await self._until_upgraded(within=_CALM_SECONDS)
        await admin.create_service("serve", {"kubernetes.io/hostname": self._nodes[1]}, gpus=2)

    async def run(self, seconds: float) -> list[str]:
        """Upgrade under faults for a while, then calm down; return what went wrong."""
        background = [self._faults.run(), self._hostile.run()]
        probing = asyncio.create_task(self._probes.run(), name="probes")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await _while_running(self._upgrade_again_and_again(), background)
            self._print_line("the storm is over; the last upgrade must finish")
            try:
                await self._until_upgraded(within=_CALM_SECONDS)
            except TimeoutError:
                return [*self._restarts(), await self._unfinished()]
            return self._restarts()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    def result(self, problems: Sequence[str], verdict: DemoVerdict) -> StormResult:
        return StormResult(
            faults=self._faults.count,
            upgrades=self.upgrades,
            messages=self._hostile.sent,
            requests=self._hostile.requests,
            probes=self._probes.probes,
            problems=tuple(problems),
            verdict=verdict,
        )

    async def _upgrade_again_and_again(self) -> None:
        while True:
            version = VERSIONS[(self._version + 1) % len(VERSIONS)]
            self._print_line(f"upgrade to {version}")
            await _persistently(lambda version=version: self._patch_driver({"version": version}))
            self._version = (self._version + 1) % len(VERSIONS)
            await self._until_upgraded(within=None)
            self.upgrades += 1
            self._print_line(f"all nodes but {self._nodes[0]} run {version}")

    async def _until_upgraded(self, *, within: float | None) -> None:
        async with asyncio.timeout(within):
            while True:
                with suppress(KubeError):
                    if await self._done_nodes() >= {*self._nodes[1:]}:
                        return
                await asyncio.sleep(_POLL_SECONDS)

    async def _done_nodes(self) -> set[str]:
        """Return the nodes in service whose driver pod runs the current version."""
        version = VERSIONS[self._version]
        running = {
            pod["spec"].get("nodeName")
            for pod in await self._list(f"/api/v1/namespaces/{NAMESPACE}/pods")
            if pod["metadata"]["name"].startswith(("nvidia-driver", "sluice-driver"))
            and any(f":{version}" in each["image"] for each in pod["spec"]["containers"])
            and any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in pod.get("status", {}).get("conditions", [])
            )
        }
        return {
            name
            for node in await self._list("/api/v1/nodes")
            if (name := node["metadata"]["name"]) in running
            and node["metadata"].get("labels", {}).get(STATE_LABEL) == UpgradeState.UPGRADE_DONE
            and not node["spec"].get("unschedulable")
        }

    async def _unfinished(self) -> str:
        late = sorted({*self._nodes[1:]} - await self._done_nodes())
        return f"{', '.join(late)} did not reach {VERSIONS[self._version]} after the storm"

    def _restarts(self) -> list[str]:
        return [f"a probe would have restarted {each}" for each in self._probes.restarts]

    def _urls(self, page: str) -> Mapping[str, str]:
        running = self._up.processes.processes.items()
        urls = {
            name: process.metrics_url if page == "metrics" else process.livez_url
            for name, process in running
        }
        return {name: url for name, url in urls.items() if url}

    async def _patch_driver(self, driver: dict[str, Any]) -> None:
        await self._kube.request(
            "PATCH",
            path_of("nvidia.com/v1", "ClusterPolicy", name=POLICY),
            query={"fieldManager": MANAGER},
            body={"spec": {"driver": driver}},
            content_type=MERGE_PATCH,
        )

    async def _list(self, path: str) -> list[dict[str, Any]]:
        return msgspec.json.decode(await self._kube.request("GET", path))["items"]


async def run_storm(
    *, minutes: float, nodes: int, seed: int, print_line: Callable[[str], None]
) -> StormResult:
    """Run a storm from an empty cluster to its audit."""
    names = [f"node-{number + 1}" for number in range(nodes)]
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(demo_environment(names, seed=seed))
        kube = await stack.enter_async_context(kube_client(up))
        disk = agent_folder(up, names[-1])
        is_small = await stack.enter_async_context(small_disk(disk))
        if not is_small:
            print_line("no disk is filled: mounting a small one needs root")
        faults = Faults(
            up,
            kube=kube,
            nodes=names[1:],
            small_disk=disk if is_small else None,
            random=random.Random(seed),
            print_line=print_line,
        )
        await up.install(DemoAdmin(kube))
        storm = Storm(up, kube, nodes=names, faults=faults, print_line=print_line)
        driverless = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
        async with (
            bus_client(up) as bus,
            bus_client(up, READER) as reader,
            observe_reports(driverless, bus=reader, clock=up.clock),
        ):
            await storm.install()
            problems = await storm.run(60 * minutes)
            events = await _persistently(lambda: events_of(bus))
        await up.processes.end()
        verdict = await judge_run(
            up.paths, names, events=events, pool_facts=driverless.pool_facts, faults=True
        )
        return storm.result(problems, verdict)


def result_lines(result: StormResult) -> list[str]:
    """Return the result as lines for a person."""
    return [
        f"{result.faults} faults, {result.upgrades} upgrades, {result.probes} probes",
        f"{result.messages} messages and {result.requests} HTTP requests of the hostile node",
        *(f"  FAILED  {problem}" for problem in result.problems),
        *verdict_lines(result.verdict),
    ]


async def _while_running(
    main: Coroutine[Any, Any, None], others: Sequence[Coroutine[Any, Any, None]]
) -> None:
    """Run `main` beside the others; whatever ends first ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (main, *others)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def _persistently(act: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat an action until bus and API server can be reached."""
    while True:
        try:
            return await act()
        except (KubeError, BusError):
            await asyncio.sleep(_POLL_SECONDS)
