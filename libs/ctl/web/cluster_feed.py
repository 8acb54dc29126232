"""Follow Nodes, Rollouts and Devices with caches, and keep the board's rows up to date.

Changes only mark rows; a round twice a second computes each marked row once.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from sys import intern
from typing import Final

import msgspec

from libs.contracts.device import UNKNOWN, DeviceHealth, DeviceSpec
from libs.contracts.health import HealthState
from libs.contracts.node import LEASE_ANNOTATION, RECORD_ANNOTATION, SKIP_LABEL, STATE_LABEL
from libs.contracts.rollout import RolloutStatus
from libs.ctl import answers, node_rows
from libs.ctl.answers import Source
from libs.ctl.cluster import DEVICES, ROLLOUTS, Cluster, Rollout
from libs.ctl.edits import record_of
from libs.ctl.failures import Failure
from libs.ctl.text import printable
from libs.ctl.web import history, model
from libs.ctl.web.board import Board
from libs.ctl.web.bus_feed import BusFeed
from libs.kube import views
from libs.kube.informer import Informer
from libs.kube.resources import NODES, Resource
from libs.runtime.env import Env

ROUND_SECONDS: Final = 0.5
VERSIONS_SECONDS: Final = 30.0


_LABELS: Final = (model.GPU_LABEL, STATE_LABEL, SKIP_LABEL, node_rows.VERSION_LABEL)
_ANNOTATIONS: Final = (RECORD_ANNOTATION, LEASE_ANNOTATION)
_READY: Final = views.NodeStatus(conditions=(views.Condition(type="Ready", status="True"),))
_SPECS: Final = {each: views.NodeSpec(unschedulable=each) for each in (True, False)}


class _Node(views.Object, frozen=True, kw_only=True, gc=False):
    """A Node without what the page does not show."""

    spec: views.NodeSpec = views.NodeSpec()
    status: views.NodeStatus = views.NodeStatus()

    def __post_init__(self) -> None:
        own, ready = self.metadata, _READY if self.is_ready else views.NodeStatus()
        lean = views.Metadata(
            name=own.name,
            uid=own.uid,
            resource_version=own.resource_version,
            labels={key: own.labels[key] for key in _LABELS if key in own.labels},
            annotations={
                key: own.annotations[key] for key in _ANNOTATIONS if key in own.annotations
            },
        )
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "spec", _SPECS[self.spec.unschedulable])
        msgspec.structs.force_setattr(self, "status", ready)

    @property
    def is_ready(self) -> bool:
        conditions = self.status.conditions
        return any((each.type, each.status) == ("Ready", "True") for each in conditions)


class _DeviceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    health: DeviceHealth | None = None


class _Device(views.Object, frozen=True, kw_only=True, gc=False):
    spec: DeviceSpec
    status: _DeviceStatus = _DeviceStatus()

    def __post_init__(self) -> None:
        own, spec = self.metadata, self.spec
        lean = views.Metadata(name=own.name, uid=own.uid, resource_version=own.resource_version)
        msgspec.structs.force_setattr(self, "metadata", lean)
        shared = DeviceSpec(node=intern(spec.node), index=spec.index, product=intern(spec.product))
        msgspec.structs.force_setattr(self, "spec", shared)
        if self.health == _OK:
            msgspec.structs.force_setattr(self, "status", _OK_STATUS)

    @property
    def health(self) -> str:
        return printable(self.status.health.state) if self.status.health else UNKNOWN


_OK: Final = HealthState.OK.value
_OK_STATUS: Final = _DeviceStatus(health=DeviceHealth(state=_OK))
_NODES: Final = Resource(
    plural=NODES.plural, kind=NODES.kind, namespaced=False, creatable=False, view=_Node
)
_DEVICES: Final = Resource(
    group=DEVICES.group,
    version=DEVICES.version,
    plural=DEVICES.plural,
    kind=DEVICES.kind,
    namespaced=False,
    view=_Device,
)


class ClusterFeed:
    """Keeps the board while `run` runs."""

    def __init__(self, cluster: Cluster, board: Board, bus: BusFeed, *, env: Env) -> None:
        self._cluster = cluster
        self._board = board
        self._bus = bus
        self._clock = env.clock
        self._nodes = Informer(cluster.kube, _NODES, env=env)
        self._rollouts = Informer(cluster.kube, ROLLOUTS, env=env)
        self._devices = Informer(
            cluster.kube, _DEVICES, env=env, indexes={"node": lambda each: (each.spec.node,)}
        )
        self._dirty: set[str] = set()
        """Names of nodes whose rows are to be computed again."""
        self._gpus_changed = False
        self._products: dict[str, Counter[str]] = {}
        self._gpus_of: dict[str, Counter[str]] = {}
        self._sick: dict[str, _Device] = {}
        self.versions: Mapping[str, str] = {}
        """Driver versions by target."""

    async def run(self) -> None:
        self._nodes.cache.on_change(self._node_changed)
        self._rollouts.cache.on_change(self._rollout_changed)
        self._devices.cache.on_change(self._device_changed)
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._nodes, self._rollouts, self._devices):
                tasks.create_task(informer.run())
            tasks.create_task(self._name_versions())
            tasks.create_task(self._rounds())

    def sources(self) -> tuple[Source, ...]:
        """Return how old what Kubernetes says is, and why it is not current."""
        informers = (self._nodes, self._rollouts, self._devices)
        problems = (each.why_not_synced or each.cache.problem for each in informers)
        problem = next(filter(None, problems), "")
        age = max(each.age for each in informers)
        return (
            Source(
                name=f"Kubernetes ({self._cluster.address})",
                gives="nodes, pools and GPUs",
                age=None if age == float("inf") else age,
                problem=printable(problem),
            ),
        )

    def is_known(self, node: str) -> bool:
        return self._nodes.cache.get(node) is not None

    def devices_of(self, node: str) -> list[str]:
        """Return the names of the Devices of a node."""
        return sorted(each.metadata.name for each in self._devices.cache.by_index("node", node))

    def pools_to_plan(self) -> dict[str, str]:
        """Return the target of each pool whose rollout is under way."""
        return {
            each.metadata.name: each.status.target
            for each in self._rollouts
            if each.status.target and each.status.phase.value in ("Proving", "Proven")
        }

    def started(self, pool: str) -> set[str]:
        """Return the nodes of a pool that have begun or ended their move to its target."""
        return {name for name, bar in self._board.bars.items() if bar.pool == pool and _begun(bar)}

    async def _name_versions(self) -> None:
        """Keep the versions of targets; those of earlier ones come from DaemonSets."""
        await self._rollouts.cache.wait_synced()
        while True:
            try:
                found = await self._cluster.versions(tuple(self._rollouts))
            except Failure:
                found = self.versions
            if found != self.versions:
                self.versions = found
                self._mark_all()
            await self._clock.sleep(VERSIONS_SECONDS)

    async def _rounds(self) -> None:
        while True:
            self._compute()
            await self._clock.sleep(ROUND_SECONDS)

    def _compute(self) -> None:
        """Compute the rows that changed."""
        rollouts = {each.metadata.name: each for each in self._rollouts}
        self._dirty |= self._bus.take_changed()
        for name in self._dirty:
            self._compute_node(name, rollouts)
        self._dirty.clear()
        pools = (
            answers.pool_of(each.metadata, each.spec, each.status, self.versions)
            for each in sorted(rollouts.values(), key=lambda each: each.metadata.name)
        )
        told = answers.with_waits(pools, self._bus.status, self.versions)
        self._board.put_pools(tuple(map(model.clean_pool, told)))
        if self._gpus_changed:
            self._gpus_changed = False
            self._board.put_gpus(self._gpus())

    def _compute_node(self, name: str, rollouts: Mapping[str, Rollout]) -> None:
        node, shown = self._nodes.cache.get(name), printable(name)
        if node is None or not model.is_shown(node.metadata):
            self._board.put_cell(shown, None)
            self._board.put_bar(shown, None)
            return
        row = node_rows.node_row(node.metadata)
        uid = node.metadata.uid
        cell = model.cell_of(
            row,
            wait=self._bus.wait(name, uid),
            ready=node.is_ready,
            cordoned=node.spec.unschedulable,
            gpus=dict(sorted(self._gpus_of.get(name, Counter()).items())),
        )
        self._board.put_cell(shown, cell)
        move = self._bus.move(name, uid)
        pool = row.pool or (move.pool if move else "")
        status = rollouts[pool].status if pool in rollouts else RolloutStatus()
        seen = history.move_from_kubernetes(status, uid, record_of(node.metadata))
        move = history.best(move, seen, target=status.target)
        planned = self._bus.planned(pool, status.target, name)
        self._board.put_bar(shown, history.bar_of(name, pool, move, planned, self.versions))

    def _gpus(self) -> model.Gpus:
        sick = sorted(self._sick.values(), key=lambda each: (each.spec.node, each.spec.index))
        return model.Gpus(
            products={
                name: dict(sorted(counts.items()))
                for name, counts in sorted(self._products.items())
                if counts
            },
            sick=tuple(map(_sick_gpu, sick[: model.MOST_SICK])),
            sick_in_all=len(sick),
        )

    def _node_changed(self, old: _Node | None, new: _Node | None) -> None:
        node = new or old
        if node is not None:
            self._dirty.add(node.metadata.name)
        if old is not None and new is None:
            self._bus.forget(old.metadata.name)

    def _rollout_changed(self, old: Rollout | None, new: Rollout | None) -> None:
        before, after = (each.status if each else RolloutStatus() for each in (old, new))
        if before.target != after.target:
            self._mark_all()
        flights = (*before.in_flight.values(), *after.in_flight.values())
        self._dirty |= {each.node for each in flights}

    def _device_changed(self, old: _Device | None, new: _Device | None) -> None:
        for device, change in ((old, -1), (new, 1)):
            if device is None:
                continue
            name, node, product = device.metadata.name, device.spec.node, device.spec.product
            _count(self._gpus_of, node, device.health, change)
            _count(self._products, printable(product), device.health, change)
            self._sick.pop(name, None)
            if change > 0 and model.is_sick(device.health):
                self._sick[name] = device
            self._dirty.add(node)
        self._gpus_changed = True

    def _mark_all(self) -> None:
        self._dirty |= {each.metadata.name for each in self._nodes}


def _begun(bar: model.Bar) -> bool:
    return bar.start is not None or bar.end is not None


def _count(counts: dict[str, Counter[str]], key: str, health: str, change: int) -> None:
    of_key = counts.setdefault(key, Counter())
    of_key[health] += change
    if not of_key[health]:
        del of_key[health]
    if not of_key:
        del counts[key]


def _sick_gpu(device: _Device) -> model.SickGpu:
    spec, health = device.spec, device.status.health
    return model.SickGpu(
        node=printable(spec.node),
        index=spec.index,
        product=printable(spec.product),
        health=device.health,
        because=printable((health.message or health.reason) if health else ""),
        remedy=printable(health.remedy if health else ""),
    )
