"""What a batch comes to: sums over GPUs, which add up over nodes. Pure.

What nobody measured is not counted as 0: it is absent, and so is a mean of nothing.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from libs.contracts.telemetry import GpuSample

N = TypeVar("N", int, float)

MIB: Final = 1024 * 1024


class GpuTotals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of some GPUs, of one node or of many."""

    gpus: int = 0
    mute: int = 0
    """GPUs that are there, and of which nothing could be read."""
    busy: float = 0.0
    """The sum of their utilisations, each from 0 to 1, of those where it is known."""
    busy_of: int = 0
    """How many these are."""
    memory_used: int | None = None
    """Bytes."""
    memory: int | None = None
    power: float | None = None
    """Watts."""
    hottest: int | None = None
    """Degrees Celsius."""

    @property
    def utilization(self) -> float | None:
        """The mean."""
        return self.busy / self.busy_of if self.busy_of else None


def node_totals(samples: Iterable[GpuSample]) -> GpuTotals:
    """The GPUs of one node."""
    return sum_totals(_one(sample) for sample in samples)


def sum_totals(parts: Iterable[GpuTotals]) -> GpuTotals:
    """All of them together."""
    many = list(parts)
    return GpuTotals(
        gpus=sum(one.gpus for one in many),
        mute=sum(one.mute for one in many),
        busy=sum(one.busy for one in many),
        busy_of=sum(one.busy_of for one in many),
        memory_used=_sum(one.memory_used for one in many),
        memory=_sum(one.memory for one in many),
        power=_sum(one.power for one in many),
        hottest=max((one.hottest for one in many if one.hottest is not None), default=None),
    )


def _one(sample: GpuSample) -> GpuTotals:
    busy = sample.gpu_utilization
    used, memory = _memory(sample)
    return GpuTotals(
        gpus=1,
        mute=_is_mute(sample),
        busy=0.0 if busy is None else busy / 100,
        busy_of=busy is not None,
        memory_used=used,
        memory=memory,
        power=sample.power_w,
        hottest=sample.temperature_c,
    )


def _memory(sample: GpuSample) -> tuple[int | None, int | None]:
    """What is used, and what there is: only together they say anything."""
    used, free = sample.framebuffer_used_mib, sample.framebuffer_free_mib
    if used is None or free is None:
        return None, None
    return used * MIB, (used + free + (sample.framebuffer_reserved_mib or 0)) * MIB


_SAID_BY_OTHERS: Final = frozenset(("uuid", "index", "pci", "xid", "pod_uid"))
"""What is known of a GPU although it does not answer."""
_READ: Final = tuple(name for name in GpuSample.__struct_fields__ if name not in _SAID_BY_OTHERS)


def _is_mute(sample: GpuSample) -> bool:
    return all(getattr(sample, name) is None for name in _READ)


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None
