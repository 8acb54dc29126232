"""What is known of the fleet's GPUs now: the last batch of each node, as numbers, and no older one.

Its size is that of the fleet, however long it hears. Where batches come from is not known here.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.contracts.telemetry import Batch
from services.telemetry.cluster.totals import GpuTotals, node_totals

SILENT_AFTER: Final = 100.0
"""Seconds without a batch after which a node is silent: three of its sweeps, and a little."""


class LastBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last batch of one node."""

    node_uid: str
    driver_version: str
    at: float
    """When it came, by the clock of who heard it."""
    totals: GpuTotals


class _Count(msgspec.Struct):
    """A node's errors since it was first heard."""

    total: int = 0
    run: str = ""
    seen: int = 0
    run_before: str = ""
    seen_before: int = 0

    def add(self, batch: Batch) -> int:
        """How many are new."""
        if not self.run and batch.seq > 0:
            self.seen = batch.xids  # what was before we listened is not of now
            self.run = batch.run
        elif batch.run != self.run:
            # Two agents overlap when one is replaced.
            following = self.seen_before if batch.run == self.run_before else 0
            self.run_before, self.seen_before = self.run, self.seen
            self.run, self.seen = batch.run, following
        new = max(0, batch.xids - self.seen)
        self.seen += new
        self.total += new
        return new


class BatchCache:
    """Of all nodes that are heard."""

    def __init__(self) -> None:
        self._heard: dict[str, LastBatch] = {}
        self._counts: dict[str, _Count] = {}

    def add(self, batch: Batch, *, now: float) -> int:
        """A node's newest batch; how many errors in it are new."""
        self._heard[batch.node] = LastBatch(
            node_uid=batch.node_uid,
            driver_version=batch.driver_version,
            at=now,
            totals=node_totals(batch.gpus),
        )
        return self._counts.setdefault(batch.node, _Count()).add(batch)

    def forget(self, node: str) -> None:
        """Nothing more is to be known of it."""
        self._heard.pop(node, None)
        self._counts.pop(node, None)

    def current(self, *, now: float) -> Iterator[tuple[str, LastBatch]]:
        """Nodes that are not silent, by name."""
        for node, last in list(self._heard.items()):
            if now - last.at > SILENT_AFTER:
                del self._heard[node]
        yield from sorted(self._heard.items())

    def xids(self, node: str) -> int:
        """Errors of its GPUs since it was first heard."""
        count = self._counts.get(node)
        return count.total if count else 0
