"""Batches and Nodes brought together: who is heard, who is not, and what each pool comes to."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from libs.contracts.telemetry import Batch
from libs.kube.cache import Cache
from libs.policy.pool_index import PoolIndex
from libs.runtime.clock import Clock
from services.telemetry.cluster.batch_cache import BatchCache, LastBatch
from services.telemetry.cluster.resources import Node
from services.telemetry.cluster.totals import GpuTotals, sum_totals


class NodeTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """One node that is heard."""

    name: str
    pool: str
    driver_version: str
    age: float
    """Seconds since its last batch came."""
    xids: int
    totals: GpuTotals

    @property
    def measured(self) -> bool:
        """Its agent may also say that it has nothing to measure."""
        return self.totals.gpus > 0


class PoolTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    measured: int
    waiting: int
    silent: int
    xids: int
    totals: GpuTotals


class FleetTelemetry:
    """All of it. Until the API server has told its Nodes, whoever speaks is shown, in no pool."""

    def __init__(self, nodes: Cache[Node], *, belonging: PoolIndex, clock: Clock) -> None:
        self._nodes = nodes
        self._belonging = belonging
        self._clock = clock
        self._picture = BatchCache()
        self._xids = Counter[str]()
        """By pool. A node that leaves takes none with it: it is a counter."""
        self.unknown_batches = 0
        """Batches of nodes that there are not, or that are others of the same name."""

    def add(self, batch: Batch) -> bool:
        """Whether it is of a node that there is."""
        if self._nodes.is_synced and not self._is_there(batch.node, batch.node_uid):
            self.unknown_batches += 1
            return False
        new = self._picture.add(batch, now=self._clock.monotonic())
        if new:
            self._xids[self._pool(batch.node)] += new
        return True

    def forget(self, node: str) -> None:
        """It is gone, or its GPUs are not to be measured any more."""
        self._picture.forget(node)

    def nodes(self) -> Iterator[NodeTelemetry]:
        """Those that are heard, by name."""
        now = self._clock.monotonic()
        for name, last in self._picture.current(now=now):
            if not self._nodes.is_synced or self._is_there(name, last.node_uid):
                yield self._node(name, last, now)

    def pools(self, heard: list[NodeTelemetry]) -> Mapping[str, PoolTelemetry]:
        """By key; nodes without a pool under an empty one. Empty while no Node is known."""
        if not self._nodes.is_synced:
            return {}
        by_pool: dict[str, list[NodeTelemetry]] = {}
        for one in heard:
            by_pool.setdefault(one.pool, []).append(one)
        there = Counter(self._pool_of(node) for node in self._nodes)
        self._drop(there)
        return {
            pool: _pool(by_pool.get(pool, []), of=there[pool], xids=self._xids[pool])
            for pool in sorted(there)
        }

    def _drop(self, there: Counter[str]) -> None:
        for pool in self._xids.keys() - there.keys():
            del self._xids[pool]

    def _node(self, name: str, last: LastBatch, now: float) -> NodeTelemetry:
        return NodeTelemetry(
            name=name,
            pool=self._pool(name),
            driver_version=last.driver_version,
            age=now - last.at,
            xids=self._picture.xids(name),
            totals=last.totals,
        )

    def _is_there(self, name: str, uid: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.metadata.uid == uid

    def _pool(self, name: str) -> str:
        node = self._nodes.get(name)
        return self._pool_of(node) if node else ""

    def _pool_of(self, node: Node) -> str:
        return node.pool or self._belonging.pool_of(node.metadata.name)


def _pool(heard: list[NodeTelemetry], *, of: int, xids: int) -> PoolTelemetry:
    measured = sum(one.measured for one in heard)
    return PoolTelemetry(
        measured=measured,
        waiting=len(heard) - measured,
        silent=of - len(heard),
        xids=xids,
        totals=sum_totals(one.totals for one in heard),
    )
