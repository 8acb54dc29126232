"""Join batches with Nodes: which nodes send, which are silent, and the totals of each pool."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.telemetry import Batch, GpuSample
from libs.kube import resources, views
from libs.kube.cache import Cache
from libs.kube.views.lean import keep_metadata
from libs.policy.pool_index import PoolIndex, recorded_pool
from libs.policy.render.agents import AGENTS
from libs.runtime.clock import Clock
from services.telemetry.cluster.page import proper_samples
from services.telemetry.cluster.totals import GpuTotals, node_totals, sum_totals
from services.telemetry.exposition import NodeSamples

SILENT_AFTER: Final = 100.0
"""Seconds without a batch after which a node is silent: a little more than three reports."""


class LastBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of a node's newest batch."""

    node_uid: str
    driver_version: str
    at: float
    """Time of receipt, by the local monotonic clock."""
    totals: GpuTotals
    samples: tuple[GpuSample, ...]
    """Those that may be on the page of the fleet."""


class _XidCount(msgspec.Struct):
    """XIDs of a node since its first batch; an agent restarts its own count with each run."""

    total: int = 0
    run: str = ""
    seen: int = 0
    previous_run: str = ""
    previous_seen: int = 0

    def add(self, batch: Batch) -> int:
        """Return how many XIDs are new."""
        if not self.run and batch.seq > 0:
            self.seen = batch.xids  # those from before this process followed the run
            self.run = batch.run
        elif batch.run != self.run:
            # Two agents overlap while one replaces the other.
            seen = self.previous_seen if batch.run == self.previous_run else 0
            self.previous_run, self.previous_seen = self.run, self.seen
            self.run, self.seen = batch.run, seen
        new = max(0, batch.xids - self.seen)
        self.seen += new
        self.total += new
        return new


class BatchCache:
    """The newest batch of each node that sends, and the count of its XIDs."""

    def __init__(self) -> None:
        self._batches: dict[str, LastBatch] = {}
        self._counts: dict[str, _XidCount] = {}
        self.refused = 0
        """Samples that cannot be true."""

    def add(self, batch: Batch, *, now: float) -> int:
        """Store a node's newest batch; return how many of its XIDs are new."""
        proper = proper_samples(batch)
        self.refused += proper.refused
        self._batches[batch.node] = LastBatch(
            node_uid=batch.node_uid,
            driver_version=proper.driver_version,
            at=now,
            totals=node_totals(batch.gpus),
            samples=proper.samples,
        )
        return self._counts.setdefault(batch.node, _XidCount()).add(batch)

    def forget(self, node: str) -> None:
        """Drop what is known of a node that is deleted: one of the same name begins anew."""
        self._batches.pop(node, None)
        self._counts.pop(node, None)

    def current(self, *, now: float) -> Iterator[tuple[str, LastBatch]]:
        """Yield the nodes that are not silent, by name."""
        for node, last in list(self._batches.items()):
            if now - last.at > SILENT_AFTER:
                del self._batches[node]
        yield from sorted(self._batches.items())

    def xids(self, node: str) -> int:
        """Return the XIDs of a node's GPUs since its first batch."""
        count = self._counts.get(node)
        return count.total if count else 0


SELECTOR: Final = next(
    "=".join(agent.selector) for agent in AGENTS if agent.component is Writer.TELEMETRY
)
"""Selects the nodes on which a telemetry agent runs."""


class Node(views.Object, frozen=True, kw_only=True):
    """A Node with only what is needed: a cluster may have thousands."""

    pool: str = ""
    """The key of its recorded pool; if empty, the labels are kept to find the pool by policies."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        if metadata.labels or metadata.annotations:
            views.settle(self, pool=recorded_pool(metadata))
        keep_metadata(self, labels=not self.pool)


NODES: Final = resources.NODES.viewed_as(Node)


class NodeTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """A node that sends batches."""

    name: str
    pool: str
    driver_version: str
    age: float
    """Seconds since its last batch arrived."""
    xids: int
    totals: GpuTotals

    @property
    def measured(self) -> bool:
        """False if its batches are empty: there is nothing to measure now."""
        return self.totals.gpus > 0


class PoolTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a pool that have a telemetry agent, by what they send, and their totals."""

    measured: int
    waiting: int
    silent: int
    xids: int
    totals: GpuTotals


class FleetTelemetry:
    """Until the Nodes are listed, every node that sends is included, in no pool."""

    def __init__(self, nodes: Cache[Node], *, pool_index: PoolIndex, clock: Clock) -> None:
        self._nodes = nodes
        self._pool_index = pool_index
        self._clock = clock
        self._batches = BatchCache()
        self._pool_xids = Counter[str]()
        """By pool. XIDs of a node that leaves stay, so that the counter never falls."""
        self.unknown_batches = 0
        """Batches whose Node does not exist, or exists with another uid."""

    @property
    def refused_samples(self) -> int:
        """The samples that were left out, because they cannot be true."""
        return self._batches.refused

    def add(self, batch: Batch) -> bool:
        """Add a batch; return False if its Node does not exist."""
        if self._nodes.is_synced and not self._exists(batch.node, batch.node_uid):
            self.unknown_batches += 1
            return False
        new = self._batches.add(batch, now=self._clock.monotonic())
        if new:
            self._pool_xids[self._pool(batch.node)] += new
        return True

    def forget(self, node: str) -> None:
        self._batches.forget(node)

    def nodes(self) -> Iterator[NodeTelemetry]:
        """Yield the nodes that are not silent, by name."""
        now = self._clock.monotonic()
        for name, last in self._current(now):
            yield NodeTelemetry(
                name=name,
                pool=self._pool(name),
                driver_version=last.driver_version,
                age=now - last.at,
                xids=self._batches.xids(name),
                totals=last.totals,
            )

    def samples(self) -> Iterator[NodeSamples]:
        """Yield the samples of the nodes that are not silent, by name."""
        for name, last in self._current(self._clock.monotonic()):
            yield NodeSamples(node=name, driver_version=last.driver_version, samples=last.samples)

    def pools(self, sending: list[NodeTelemetry]) -> Mapping[str, PoolTelemetry]:
        """Return the pools by key; nodes without a pool are under "". Empty before the first list.

        Drop the counters of pools that have no node.
        """
        if not self._nodes.is_synced:
            return {}
        by_pool: dict[str, list[NodeTelemetry]] = {}
        for node in sending:
            by_pool.setdefault(node.pool, []).append(node)
        sizes = Counter(self._pool(node.metadata.name) for node in self._nodes)
        for pool in self._pool_xids.keys() - sizes.keys():
            del self._pool_xids[pool]
        return {
            pool: _pool_telemetry(
                by_pool.get(pool, []), size=sizes[pool], xids=self._pool_xids[pool]
            )
            for pool in sorted(sizes)
        }

    def _current(self, now: float) -> Iterator[tuple[str, LastBatch]]:
        for name, last in self._batches.current(now=now):
            if not self._nodes.is_synced or self._exists(name, last.node_uid):
                yield name, last

    def _exists(self, name: str, uid: str) -> bool:
        """Whether there is a Node with this uid; batches of an earlier one say nothing."""
        node = self._nodes.get(name)
        return node is not None and node.metadata.uid == uid

    def _pool(self, name: str) -> str:
        node = self._nodes.get(name)
        return (node.pool or self._pool_index.pool_of(name)) if node else ""


def _pool_telemetry(sending: list[NodeTelemetry], *, size: int, xids: int) -> PoolTelemetry:
    measured = sum(node.measured for node in sending)
    return PoolTelemetry(
        measured=measured,
        waiting=len(sending) - measured,
        silent=size - len(sending),
        xids=xids,
        totals=sum_totals(node.totals for node in sending),
    )
