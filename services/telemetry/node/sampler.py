"""Looks at the GPUs of one machine, again and again, and lets go of them when it is told to.

What it saw last is shown only while it can be true. Who reads it is not known here.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from services.telemetry.node.metrics import TelemetryMetrics


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What all GPUs did at one moment."""

    driver_version: str
    gpus: tuple[Gpu, ...]
    samples: tuple[GpuSample, ...]


INTERVAL: Final = 30.0
"""Seconds between two sweeps, as dcgm-exporter has it."""
STALE_AFTER: Final = 3 * INTERVAL
"""Seconds after which what was seen is shown no more."""


class _SweepResult(msgspec.Struct, frozen=True):
    sweep: Sweep | None = None
    errors: Mapping[str, tuple[int, ...]] = {}
    """The driver tells them once: they count even where the sweep failed after them."""


class Sampler:
    """One machine's GPUs."""

    def __init__(
        self, *, machine: Machine, hold: GpuHandle, clock: Clock, metrics: TelemetryMetrics
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._clock = clock
        self._meters = metrics
        self._errors = XidCounts()
        # Whoever lets go waits for a sweep under way, which else would take hold again.
        self._alone = asyncio.Lock()
        self._sweep: Sweep | None = None
        self._looked = clock.monotonic()

    @property
    def current(self) -> Sweep | None:
        """What the GPUs do; None: that is not known now."""
        return None if self._late else self._sweep

    @property
    def xids(self) -> int:
        """Errors of all GPUs in this process's life."""
        return self._errors.total

    @property
    def trouble(self) -> str:
        """Why the GPUs are not measured, in words; empty if they are."""
        if late := self._late:
            return f"the GPUs did not answer for {late:.0f} s"
        return self._hold.why or ("" if self._sweep else "the GPUs are not looked at yet")

    @property
    def _late(self) -> float:
        """Seconds since the last look ended, where those are too many."""
        silence = self._clock.monotonic() - self._looked
        return silence if silence > STALE_AFTER else 0.0

    async def sweep(self) -> None:
        """One sweep, if there is anybody to be asked."""
        async with self._alone:
            found = await self._machine.offload.do(self._look)
            self._errors.add(found.errors)
            self._meters.count_xids(found.errors)
            self._sweep = found.sweep and msgspec.structs.replace(
                found.sweep, samples=self._errors.with_last_xids(found.sweep.samples)
            )
            self._looked = self._clock.monotonic()
        self._meters.count_sweep(measured=found.sweep is not None)

    async def release(self) -> None:
        """Hold no GPU from now on, and show nothing but why."""
        async with self._alone:
            await self._machine.offload.do(self._hold.release)
            self._sweep = None
        await self.sweep()

    async def resume(self) -> None:
        """The GPUs may be held again: look at them."""
        self._hold.resume()
        await self.sweep()

    def _look(self) -> _SweepResult:
        library = self._hold.acquire()
        if library is None:
            return _SweepResult()
        gpus = self._hold.gpus
        errors: Mapping[str, tuple[int, ...]] = {}
        try:
            errors = gpus.errors()
            sweep = Sweep(
                driver_version=library.driver_version,
                gpus=gpus.describe(),
                samples=gpus.sample(),
            )
        except GpusUnavailable as error:
            self._hold.mark_lost(error)
            return _SweepResult(errors=errors)
        return _SweepResult(sweep, errors)


class XidCounts:
    """The XIDs of this process's life: each is counted when it is told, also one that repeats."""

    def __init__(self) -> None:
        self.total = 0
        self._last: dict[str, int] = {}

    def add(self, errors: Mapping[str, tuple[int, ...]]) -> None:
        """What the driver told since the last time."""
        for uuid, codes in errors.items():
            self.total += len(codes)
            if codes:
                self._last[uuid] = codes[-1]

    def with_last_xids(self, samples: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        """The samples, each with the last error of its GPU, if it had one."""
        return tuple(
            msgspec.structs.replace(one, xid=self._last[one.uuid])
            if one.uuid in self._last
            else one
            for one in samples
        )
