"""Sums over GPUs, which add up over nodes. Pure.

A value that was not measured is absent, not 0; so is the mean of no values.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from libs.contracts.telemetry import GpuSample
from services.telemetry.field import memory_mib

N = TypeVar("N", int, float)

MIB: Final = 1024 * 1024


class GpuTotals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Sums over GPUs; those of a pool are the sums of its nodes'."""

    gpus: int = 0
    mute: int = 0
    """GPUs that exist and of which nothing could be read."""
    busy: float = 0.0
    """Sum of the known utilizations, each from 0 to 1."""
    busy_of: int = 0
    """Number of GPUs with a known utilization."""
    memory_used: int | None = None
    """Bytes."""
    memory: int | None = None
    power: float | None = None
    """Watts."""
    hottest: int | None = None
    """Degrees Celsius."""

    @property
    def utilization(self) -> float | None:
        """The mean of the known utilizations; None where none is known, which is no idle GPU."""
        return self.busy / self.busy_of if self.busy_of else None


def node_totals(samples: Iterable[GpuSample]) -> GpuTotals:
    return sum_totals(_gpu_totals(sample) for sample in samples)


def sum_totals(parts: Iterable[GpuTotals]) -> GpuTotals:
    parts = list(parts)
    return GpuTotals(
        gpus=sum(part.gpus for part in parts),
        mute=sum(part.mute for part in parts),
        busy=sum(part.busy for part in parts),
        busy_of=sum(part.busy_of for part in parts),
        memory_used=_sum(part.memory_used for part in parts),
        memory=_sum(part.memory for part in parts),
        power=_sum(part.power for part in parts),
        hottest=max((part.hottest for part in parts if part.hottest is not None), default=None),
    )


def _gpu_totals(sample: GpuSample) -> GpuTotals:
    busy = sample.gpu_utilization
    used, memory = sample.framebuffer_used_mib, memory_mib(sample)
    return GpuTotals(
        gpus=1,
        mute=not sample.is_measured,
        busy=0.0 if busy is None else busy / 100,
        busy_of=busy is not None,
        memory_used=None if used is None or memory is None else used * MIB,
        memory=None if memory is None else memory * MIB,
        power=sample.power_w,
        hottest=sample.temperature_c,
    )


def _sum(values: Iterable[N | None]) -> N | None:
    """Return the sum of what is known; None of nothing, because 0 would look measured."""
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None
