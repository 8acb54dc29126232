"""What a field of dcgm-exporter's lists is: its names and texts, and where its value comes from."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample

Value: TypeAlias = int | float | None


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a GPU beside its sample."""

    driver_version: str
    sample: GpuSample
    gpu: Gpu | None = None


class NumberField(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    help: str
    of: Callable[[GpuSample], Value]
    source: str
    """What NVML is asked, for people."""
    is_float: bool = False
    remark: str = ""


class TextField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the type `label`: it becomes a label of every sample."""

    name: str
    help: str
    of: Callable[[Described], str]
    source: str
    remark: str = ""


Field: TypeAlias = NumberField | TextField


def bus_id(pci: str) -> str:
    """Return a PCI address as NVML writes it: `00000000:1B:00.0`."""
    domain, colon, rest = pci.partition(":")
    return f"{domain.rjust(8, '0')}{colon}{rest}".upper()


def memory_mib(sample: GpuSample) -> int | None:
    used, free = sample.framebuffer_used_mib, sample.framebuffer_free_mib
    if used is None or free is None:
        return None
    return used + free + (sample.framebuffer_reserved_mib or 0)


def used_share(sample: GpuSample) -> float | None:
    used, free = sample.framebuffer_used_mib, sample.framebuffer_free_mib
    return used / (used + free) if used is not None and free is not None and used + free else None


def number(
    name: str,
    type: str,
    help: str,
    value: str | Callable[[GpuSample], Value],
    source: str,
    *,
    remark: str = "",
) -> NumberField:
    """Return a field; `value` is a function, or names a part of the sample."""
    is_float = value is used_share or (isinstance(value, str) and value.endswith(_FLOATS))
    return NumberField(
        name=f"DCGM_FI_{name}",
        type=type,
        help=help,
        of=attrgetter(value) if isinstance(value, str) else value,
        source=source,
        is_float=is_float,
        remark=remark,
    )


_FLOATS: Final = ("_w", "_active", "_occupancy")
"""How the names of those parts of a sample end that are no integers."""

GPM: Final = "Hopper and later; absent before"
OF_INSTANCES: Final = "of a MIG instance: its own"
REMAPS: Final = "Ampere and later"
LINKS: Final = "only with NVLink"


def profiled(name: str, help: str, value: str, *, gpm: int) -> NumberField:
    """Return the share that a GPU's performance monitors measure, which instances have, too."""
    return number(
        f"PROF_{name}",
        "gauge",
        help,
        value,
        f"GPM metric {gpm} / 100",
        remark=f"{GPM}; {OF_INSTANCES}",
    )


def field(*numbers: int) -> str:
    return "field " + " + ".join(map(str, numbers))
