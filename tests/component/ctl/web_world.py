"""A fleet for the page: Nodes with records, Devices, events and the scheduler's answers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import aiohttp
import msgspec

from libs.contracts.device import DeviceHealth
from libs.contracts.events import Event, EventBody, StepEvent, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.node import SKIP_LABEL, STATE_LABEL
from libs.contracts.queries import (
    PlanAnswer,
    PlannedNode,
    PlanQuery,
    PoolStatus,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WaitReason,
    WhyAnswer,
    WhyQuery,
)
from libs.contracts.rollout import Counts
from libs.contracts.waits import WaitCode
from libs.ctl.options import Access
from libs.ctl.web.run import serve_page
from libs.fleet.node import GPU_LABEL
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import NODES
from tests.component.ctl.world import NEW, POOL, World

REQUIRED, EVICTING = "upgrade-required", "pod-deletion-required"
DONE, FAILED = "upgrade-done", "upgrade-failed"


async def add_gpu_node(
    world: World,
    name: str,
    *,
    state: str = DONE,
    since: float = 0.0,
    ready: bool = True,
    skipped: bool = False,
    moving: bool = False,
    target: str = NEW,
    **record: Any,
) -> str:
    """Create a Node with GPUs, its record and its lease; return its uid."""
    labels = {GPU_LABEL: "true", STATE_LABEL: state, "nvidia.com/cuda.driver-version.full": "570.1"}
    if skipped:
        labels[SKIP_LABEL] = "true"
    await world.kube.create(NODES, {"metadata": {"name": name, "labels": labels}})
    known = {"state": state, "since": since, "target": target, **record}
    uid = await world.record(name, in_flight=moving, **known)
    await set_ready(world, name, ready=ready)
    return uid


async def set_ready(world: World, name: str, *, ready: bool) -> None:
    status = "True" if ready else "False"
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
    await world.kube.request(
        "PATCH",
        f"{NODES.path(name=name)}/status",
        body={"status": {"conditions": [condition], "nodeInfo": {"bootID": "boot-1"}}},
        content_type=MERGE_PATCH,
    )


async def set_label(world: World, name: str, key: str, value: str) -> None:
    await world.kube.request(
        "PATCH",
        NODES.path(name=name),
        body={"metadata": {"labels": {key: value}}},
        content_type=MERGE_PATCH,
    )


async def add_device(
    world: World, node: str, index: int, health: DeviceHealth | None = None
) -> None:
    spec = {"node": node, "index": index, "product": "NVIDIA H100 80GB HBM3", "memory": 81_559}
    health = health or DeviceHealth(state="ok")
    await world.apply(
        {
            "apiVersion": "gpu.nvidia.com/v1",
            "kind": "Device",
            "metadata": {"name": f"{node}-{index}"},
            "spec": spec,
            "status": {"uuid": f"GPU-{node}-{index}", "health": msgspec.to_builtins(health)},
        }
    )


def event(
    body: EventBody,
    message: str,
    *,
    node: str = "",
    uid: str = "",
    at: float,
    writer: Writer = Writer.SCHEDULER,
) -> Event:
    return Event.of(
        body,
        id=f"{message}/{at}",
        at=at,
        writer=writer,
        message=message,
        node=node,
        node_uid=uid,
    )


def step(node: str, uid: str, after: str, at: float, *, token: int = 1, before: str = "") -> Event:
    body = StepEvent(pool=POOL, token=token, before=before, after=after, target=NEW)
    return event(body, f"{node} is {after}", node=node, uid=uid, at=at)


def waits(
    node: str,
    uid: str,
    at: float,
    code: WaitCode | None,
    detail: str = "",
    *,
    who: str = "a person",
) -> Event:
    body = WaitEvent(pool=POOL, code=code, detail=detail, since=at, who=who)
    return event(body, f"{node} waits: {detail}", node=node, uid=uid, at=at)


class PageScheduler:
    """Answers as the scheduler of the fleet."""

    def __init__(self, *, at: float, planned: Mapping[str, tuple[float, float]] = {}) -> None:
        self.at = at
        self.planned = planned
        self.detail = "the budget allows 1 node at a time"

    async def status(self, query: StatusQuery) -> StatusAnswer:
        pool = PoolStatus(pool=POOL, counts=Counts(), waits={"budget": 3})
        return StatusAnswer(at=self.at, leader="scheduler-1", pools=(pool,))

    async def why(self, query: WhyQuery) -> WhyAnswer:
        wait = WaitReason(
            code=WaitCode.BUDGET, detail=self.detail, since=self.at - 60, who="the other nodes"
        )
        return WhyAnswer(
            node=query.node, pool=POOL, wait=wait, history=("1: begun", f"2: to {NEW}")
        )

    async def plan(self, query: PlanQuery) -> PlanAnswer:
        nodes = (
            PlannedNode(node=name, start_p50=start, end_p50=end)
            for name, (start, end) in self.planned.items()
        )
        return PlanAnswer(pool=query.pool, target=NEW, nodes=tuple(nodes))

    async def answer(self, world: World) -> None:
        await world.answer(
            {QueryVerb.STATUS: self.status, QueryVerb.WHY: self.why, QueryVerb.PLAN: self.plan}
        )


def access_of(world: World) -> Access:
    """Return how the command reaches the world."""
    environ = world.environ
    return Access(
        kubeconfig=environ["KUBECONFIG"],
        nats=environ["SLUICE_NATS_URL"],
        token_file=environ["SLUICE_NATS_TOKEN_FILE"],
    )


@asynccontextmanager
async def page_of(world: World, *hosts: str, listen: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Serve the page of a world; yield its address."""
    # What the command reads of its environment must not be that of the tests.
    with mock.patch.dict("os.environ", world.environ):
        access = access_of(world)
        async with serve_page(access, host=listen, port=0, hosts=hosts) as served:
            yield served.address
            assert not served.feed.done(), served.feed


class Stream:
    """What the page is told, put together."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.changes: list[dict[str, Any]] = []
        self.nodes: dict[str, dict[str, Any]] = {}
        self.bars: dict[str, dict[str, Any]] = {}
        self.pools: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.gpus: dict[str, Any] = {}
        self.sources: list[dict[str, Any]] = []

    async def next(self) -> None:
        """Read the next change."""
        line = await self._response.content.readline()
        assert line.startswith(b"data: "), line
        assert await self._response.content.readline() == b"\n"
        change = msgspec.json.decode(line.removeprefix(b"data: "))
        self.changes.append(change)
        if change.get("whole"):
            self.nodes, self.bars, self.events = {}, {}, []
        self.nodes |= {each["name"]: each for each in change.get("nodes", ())}
        self.bars |= {each["node"]: each for each in change.get("bars", ())}
        for name in change.get("gone", ()):
            del self.nodes[name]
        for name in change.get("barless", ()):
            del self.bars[name]
        self.pools = change.get("pools") or self.pools
        self.gpus = change.get("gpus") or self.gpus
        self.events += change.get("events", ())
        self.sources = change["sources"]

    async def until(self, holds: Any) -> None:
        """Read changes until a condition holds."""
        async with asyncio.timeout(60):
            while not holds():
                await self.next()


@asynccontextmanager
async def stream_of(address: str) -> AsyncGenerator[Stream]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{address}api/changes", max_line_size=1 << 20) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield Stream(response)
