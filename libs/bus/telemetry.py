"""Telemetry: batches go out without acknowledgement, and who collects them counts what is missing.

One batch costs one decode and a few look-ups, because a collector hears ten thousand nodes. What a
measurement means is not known here.
"""

from collections.abc import Callable
from typing import Self

import msgspec

from libs.bus.port import Bus, BusUnavailable, Closable
from libs.contracts import subjects, telemetry
from libs.contracts.message import MAJOR, MalformedMessage
from libs.contracts.telemetry import Batch, GpuSample
from libs.runtime.env import Env


class TelemetrySender:
    """A node's batches, numbered in one run. What cannot be sent now is never sent."""

    def __init__(self, *, bus: Bus, env: Env, node_uid: str, boot_id: str) -> None:
        me = bus.identity
        self._subject = str(subjects.Telemetry(cluster=me.cluster, node=me.node))
        self._bus = bus
        self._clock = env.clock
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._run = env.ids.new()
        self._next = 0
        self.unsent = 0
        """Batches for which the bus was away: a reader counts them as missing."""

    async def send(self, *, driver_version: str, gpus: list[GpuSample], xids: int = 0) -> None:
        """Send what was measured just now, if the bus is there; `xids` as a batch counts them."""
        batch = Batch(
            v=MAJOR,
            node=self._bus.identity.node,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            run=self._run,
            seq=self._next,
            at=self._clock.now(),
            driver_version=driver_version,
            gpus=gpus,
            xids=xids,
        )
        self._next += 1
        try:
            await self._bus.publish(self._subject, telemetry.encode(batch))
        except BusUnavailable:
            self.unsent += 1


class _Source(msgspec.Struct):
    """A node's batches so far: what comes next in its run, and in the run before that one."""

    node: str
    run: str = ""
    next: int = 0
    run_before: str = ""
    next_before: int = 0
    missing: int = 0


class TelemetryCollector:
    """Takes every batch of a cluster at most once and in order, while it is entered."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        on_batch: Callable[[Batch], None],
        group: str = "",
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._pattern = subjects.of_cluster(subjects.Telemetry, cluster)
        self._take = on_batch
        self._group = group
        self._sources: dict[str, _Source] = {}
        self._hearing: Closable | None = None
        self.received = 0
        """Batches that were taken."""
        self.missing = 0
        """Numbers that were passed over; a member of a group cannot tell, and counts none."""
        self.late = 0
        """Batches that were dropped because they, or later ones, had been taken."""
        self.malformed = 0
        self.foreign = 0
        """Batches that name another node than their subject."""

    async def __aenter__(self) -> Self:
        self._hearing = await self._bus.subscribe(self._pattern, self._hear, group=self._group)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._hearing is not None:
            await self._hearing.close()

    def missing_of(self, node: str) -> int:
        """The batches that this node sent, or numbered, and that never came."""
        source = self._sources.get(self._subject_of(node))
        return source.missing if source else 0

    def forget(self, node: str) -> None:
        """Drop the count of a node that was deleted."""
        self._sources.pop(self._subject_of(node), None)

    def _subject_of(self, node: str) -> str:
        return str(subjects.Telemetry(cluster=self._cluster, node=node))

    def _hear(self, subject: str, data: bytes, _reply: str) -> None:
        try:
            batch = telemetry.decode(data)
            source = self._sources.get(subject) or self._meet(subject)
        except (MalformedMessage, subjects.NotASubject):
            self.malformed += 1
            return
        if batch.node != source.node:
            self.foreign += 1
            return
        if batch.run != source.run:
            _change_run(source, batch)
        seq = batch.seq
        if seq != source.next:
            if seq < source.next:
                self.late += 1
                return
            if not self._group:
                source.missing += seq - source.next
                self.missing += seq - source.next
        source.next = seq + 1
        self.received += 1
        self._take(batch)

    def _meet(self, subject: str) -> _Source:
        parts = subjects.parse(subject)
        if not isinstance(parts, subjects.Telemetry):
            raise subjects.NotASubject(f"{subject!r}: not telemetry's")
        source = self._sources[subject] = _Source(node=parts.node)
        return source


def _change_run(source: _Source, batch: Batch) -> None:
    # Two agents overlap when one is replaced: the old run is remembered, so that a late batch of it
    # is not taken for the beginning of a new one.
    known = batch.run == source.run_before
    following = source.next_before if known else batch.seq
    source.run_before, source.next_before = source.run, source.next
    source.run, source.next = batch.run, following
