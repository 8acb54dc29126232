"""The last batch of each node and the count of its XIDs. Its size is bounded by the fleet's."""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.contracts.telemetry import Batch
from services.telemetry.cluster.totals import GpuTotals, node_totals

SILENT_AFTER: Final = 100.0
"""Seconds without a batch after which a node is silent: a little more than three sweeps."""


class LastBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    node_uid: str
    driver_version: str
    at: float
    """Time of receipt, by the local monotonic clock."""
    totals: GpuTotals


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
    def __init__(self) -> None:
        self._batches: dict[str, LastBatch] = {}
        self._counts: dict[str, _XidCount] = {}

    def add(self, batch: Batch, *, now: float) -> int:
        """Store a node's newest batch; return how many of its XIDs are new."""
        self._batches[batch.node] = LastBatch(
            node_uid=batch.node_uid,
            driver_version=batch.driver_version,
            at=now,
            totals=node_totals(batch.gpus),
        )
        return self._counts.setdefault(batch.node, _XidCount()).add(batch)

    def forget(self, node: str) -> None:
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
