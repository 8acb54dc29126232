"""Sample the GPUs of one machine, and release them on command.

The last sweep is served only while it is recent.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import Counter

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.errors import by_uuid
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics


class TelemetryMetrics:
    """Metrics of the agent itself; those under dcgm-exporter's names are in `fields`."""

    def __init__(self, metrics: Metrics) -> None:
        self._sweeps = metrics.counter(
            "sluice_telemetry_sweeps",
            "Sweeps over the GPUs of this node: measured, or waiting because NVML cannot be used.",
            outcome=("measured", "waiting"),
        )
        self._xids = Counter(
            "sluice_telemetry_xid_errors",
            "XID errors that the driver reported, by GPU and number, including repeated ones.",
            ["uuid", "xid"],
            registry=metrics.registry,
        )
        self._unsent = metrics.counter(
            "sluice_telemetry_unsent_batches",
            "Batches that were not sent because the bus was unavailable.",
        )

    def count_sweep(self, *, measured: bool) -> None:
        self._sweeps.labels("measured" if measured else "waiting").inc()

    def count_xids(self, errors: Mapping[str, tuple[int, ...]]) -> None:
        """Count XIDs by GPU UUID."""
        for uuid, codes in errors.items():
            for code in codes:
                self._xids.labels(uuid, str(code)).inc()

    def count_unsent(self) -> None:
        self._unsent.inc()


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of all GPUs, taken together."""

    driver_version: str
    gpus: tuple[Gpu, ...]
    samples: tuple[GpuSample, ...]


STALE_AFTER: Final = 20.0
"""Seconds after which a sweep is no longer served, nor the last sample of a GPU that is late; more
than NVML has to answer one, and than it takes until such a GPU is hung."""


class _SweepResult(msgspec.Struct, frozen=True):
    """What a sweep brought back from its thread."""

    sweep: Sweep | None = None
    errors: Mapping[str, tuple[int, ...]] = {}
    """The driver reports each XID once: they count even if the sweep failed afterwards."""


SweepWatcher = Callable[[Sweep | None, Mapping[str, tuple[int, ...]]], Awaitable[None]]
"""Called after each sweep, with None if the GPUs could not be read, and with the new XIDs."""


class Sampler:
    """Sweeps over the GPUs on demand, and keeps the last sweep for those who show it."""

    def __init__(
        self,
        *,
        machine: Machine,
        hold: GpuHandle,
        clock: Clock,
        metrics: TelemetryMetrics,
        on_sweep: SweepWatcher,
    ) -> None:
        self._on_sweep = on_sweep
        self._machine = machine
        self._hold = hold
        self._clock = clock
        self._metrics = metrics
        self._xids = XidCounts()
        self._last = LastSamples()
        # One sweep at a time.
        self._lock = asyncio.Lock()
        self._sweep: Sweep | None = None
        self._unavailable = ""
        """Why the last sweep could not measure the GPUs."""
        self._swept_at = clock.monotonic()

    @property
    def current(self) -> Sweep | None:
        """The last sweep; None if it is stale or failed."""
        return None if self._overdue else self._sweep

    @property
    def xids(self) -> int:
        """XIDs of all GPUs since this process started."""
        return self._xids.total

    @property
    def problem(self) -> str:
        """Why the GPUs are not measured; empty if they are."""
        if overdue := self._overdue:
            return f"the GPUs did not answer for {overdue:.0f} s"
        return self._unavailable or ("" if self._sweep else "the GPUs have not been sampled yet")

    @property
    def _overdue(self) -> float:
        """Seconds since the last sweep ended; 0 while that is recent."""
        age = self._clock.monotonic() - self._swept_at
        return age if age > STALE_AFTER else 0.0

    async def sweep(self) -> None:
        """Measure all GPUs once, and let the sweep be judged; sweeps never overlap."""
        async with self._lock:
            result = await self._machine.offload.run(self._measure)
            self._xids.add(result.errors)
            self._metrics.count_xids(result.errors)
            if result.sweep is None:
                self._last = LastSamples()  # what comes next may be of another driver
            self._sweep = result.sweep and msgspec.structs.replace(
                result.sweep,
                samples=self._xids.with_last_xids(
                    self._last.completed(result.sweep, self._clock.monotonic())
                ),
            )
            self._unavailable = "" if result.sweep else self._hold.unavailable_reason
            self._swept_at = self._clock.monotonic()
            await self._on_sweep(result.sweep, result.errors)
        self._metrics.count_sweep(measured=result.sweep is not None)

    async def release(self) -> None:
        """Release the GPUs until `resume`; raise `GpusUnavailable` if a device stays open."""
        try:
            await self._machine.offload.run(self._hold.release)  # this ends the calls of a sweep
        finally:
            async with self._lock:
                self._sweep = None
        await self.sweep()

    async def resume(self) -> None:
        """Open the GPUs again, and sweep at once: dashboards have had a gap since the release."""
        self._hold.resume()
        await self.sweep()

    def _measure(self) -> _SweepResult:
        """Sweep, on a thread, since NVML may hang; XIDs count even if the sweep fails."""
        library = self._hold.acquire()
        gpus = self._hold.gpus
        errors = gpus.errors()
        if library is None:
            return _SweepResult(errors=errors)
        try:
            described, samples = gpus.sweep()
        except GpusUnavailable as error:
            self._hold.mark_lost(error)
            return _SweepResult(errors=errors)
        sweep = Sweep(
            driver_version=library.driver_version,
            gpus=described,
            samples=tuple(_named(samples, described)),
        )
        # Those of the kernel log from before the first sweep name slots.
        return _SweepResult(sweep, by_uuid(errors, ((gpu.pci, gpu.uuid) for gpu in described)))


def _named(samples: Iterable[GpuSample], gpus: Iterable[Gpu]) -> Iterator[GpuSample]:
    """Yield the samples with what identifies a GPU for people."""
    described = {gpu.uuid: gpu for gpu in gpus}
    for sample in samples:
        if (gpu := described.get(sample.uuid)) is None:
            yield sample
        else:
            minor = gpu.minor if gpu.minor >= 0 else None
            yield msgspec.structs.replace(sample, minor=minor, model=gpu.name)


class LastSamples:
    """The last sample of each GPU, which is served for one that is late.

    A GPU is late for moments, while the CPUs are busy or another program has the driver's lock. On
    graphs and in alerts that must not look as if it were gone.
    """

    def __init__(self) -> None:
        self._measured: dict[str, tuple[float, GpuSample]] = {}

    def completed(self, sweep: Sweep, now: float) -> tuple[GpuSample, ...]:
        """Return the samples of a sweep, with the last one of each GPU that is merely late."""
        usable = {gpu.uuid for gpu in sweep.gpus if gpu.uuid and gpu.problem is None}
        self._measured = {uuid: last for uuid, last in self._measured.items() if uuid in usable}
        return tuple(self._completed(sample, usable, now) for sample in sweep.samples)

    def _completed(self, sample: GpuSample, usable: Container[str], now: float) -> GpuSample:
        if sample.uuid not in usable:
            return sample
        if sample.is_measured:
            self._measured[sample.uuid] = now, sample
            return sample
        at, last = self._measured.get(sample.uuid, (-math.inf, sample))
        return sample if now - at > STALE_AFTER else msgspec.structs.replace(last, late_s=now - at)


class XidCounts:
    """Counts every XID that the driver reports, repeated ones too."""

    def __init__(self) -> None:
        self.total = 0
        self._last: dict[str, int] = {}

    def add(self, errors: Mapping[str, tuple[int, ...]]) -> None:
        """Count the XIDs reported since the last call, by GPU UUID."""
        for uuid, codes in errors.items():
            self.total += len(codes)
            if codes:
                self._last[uuid] = int(codes[-1])

    def with_last_xids(self, samples: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        """Return the samples with the last XID of each GPU that had one."""
        return tuple(
            msgspec.structs.replace(sample, xid=self._last[sample.uuid])
            if sample.uuid in self._last
            else sample
            for sample in samples
        )
