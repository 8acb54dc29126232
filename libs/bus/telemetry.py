"""Send telemetry batches without acknowledgement, and collect them, counting missing ones.

A collector receives from ten thousand nodes, so the cost per batch is one decode and few look-ups.
"""

from collections.abc import Callable
from typing import Final, Self

import msgspec

from libs.bus.port import Bus, BusUnavailable, Closable
from libs.bus.rates import SenderRates
from libs.contracts import subjects, telemetry
from libs.contracts.message import MAJOR, MalformedMessage
from libs.contracts.telemetry import Batch, GpuSample
from libs.runtime.env import Env

MOST_BATCHES: Final = 10
"""Batches of a node that are read in a second; it sends one at most."""


class TelemetrySender:
    """Send a node's batches, numbered by run. A batch that cannot be sent is discarded."""

    def __init__(self, *, bus: Bus, env: Env, node_uid: str, boot_id: str) -> None:
        identity = bus.identity
        self._subject = str(subjects.Telemetry(cluster=identity.cluster, node=identity.node))
        self._bus = bus
        self._clock = env.clock
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._run = env.ids.new()
        self._next = 0
        self.unsent = 0
        """Batches discarded because the bus was unavailable; a collector counts them as missing."""

    async def send(self, *, driver_version: str, gpus: list[GpuSample], xids: int = 0) -> None:
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
    """The next sequence number of a node's current run and of its previous run."""

    node: str
    run: str = ""
    next: int = 0
    previous_run: str = ""
    previous_next: int = 0


class TelemetryCollector:
    """Pass on every batch of a cluster at most once and in order, while it is entered."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        on_batch: Callable[[Batch], None],
        rates: SenderRates | None = None,
    ) -> None:
        """`rates`: how many batches of a node are read; without it, all."""
        self._bus = bus
        self._rates = rates
        self._cluster = cluster
        self._pattern = subjects.cluster_pattern(subjects.Telemetry, cluster)
        self._on_batch = on_batch
        self._sources: dict[str, _Source] = {}
        self._subscription: Closable | None = None
        self.received = 0
        """Batches that were passed on."""
        self.missing = 0
        """Sequence numbers that were skipped."""
        self.late = 0
        """Batches dropped because they, or later ones, were received before."""
        self.malformed = 0
        """Batches that cannot be read or are too large."""
        self.foreign = 0
        """Batches whose node differs from their subject."""

    async def __aenter__(self) -> Self:
        admits = self._rates.admits if self._rates is not None else None
        self._subscription = await self._bus.subscribe(self._pattern, self._received, admits=admits)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def forget(self, node: str) -> None:
        """Drop a node that was deleted."""
        self._sources.pop(str(subjects.Telemetry(cluster=self._cluster, node=node)), None)

    def _received(self, subject: str, data: bytes, _reply: str) -> None:
        if len(data) > subjects.Telemetry.max_message:
            self.malformed += 1
            return
        try:
            batch = telemetry.decode(data)
            source = self._sources.get(subject) or self._add_source(subject)
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
            self.missing += seq - source.next
        source.next = seq + 1
        self.received += 1
        self._on_batch(batch)

    def _add_source(self, subject: str) -> _Source:
        parts = subjects.parse(subject)
        if not isinstance(parts, subjects.Telemetry):
            raise subjects.NotASubject(f"{subject!r}: not a subject of telemetry")
        source = self._sources[subject] = _Source(node=parts.node)
        return source


def _change_run(source: _Source, batch: Batch) -> None:
    # Runs overlap while an agent is replaced. The previous run is remembered so that a late batch
    # of it does not count as the beginning of a new run.
    known = batch.run == source.previous_run
    following = source.previous_next if known else batch.seq
    source.previous_run, source.previous_next = source.run, source.next
    source.run, source.next = batch.run, following
