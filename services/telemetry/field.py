"""What a field of dcgm-exporter's lists is: its names and texts, and where its value comes from."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias, get_type_hints

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample

Value: TypeAlias = int | float | None

GAUGE: Final = "gauge"
COUNTER: Final = "counter"


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a GPU beside its sample."""

    driver_version: str
    sample: GpuSample
    gpu: Gpu | None = None


class NumberField(msgspec.Struct, frozen=True, kw_only=True):
    """A field with samples: a number of each GPU, or of each of its instances."""

    name: str
    """The name in dcgm-exporter's lists, and that of the metric."""
    type: str
    help: str
    of: Callable[[GpuSample], Value]
    """Returns the value of a GPU; None where it was not measured, and then there is no sample."""
    source: str
    """What NVML is asked, for people."""
    is_float: bool = False
    """Whether the value is written with six decimals, as dcgm-exporter does."""
    remark: str = ""
    """When the value is absent or another than its name says, for people."""


class TextField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the type `label`: it becomes a label of every sample of a page.

    dcgm-exporter shows texts so, because a sample itself is a number.
    """

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
    """Return the whole framebuffer, which NVML tells in parts."""
    used, free = sample.framebuffer_used_mib, sample.framebuffer_free_mib
    if used is None or free is None:
        return None
    return used + free + (sample.framebuffer_reserved_mib or 0)


def used_share(sample: GpuSample) -> float | None:
    """Return the used part of what programs can have: what the driver reserves does not count."""
    used, free = sample.framebuffer_used_mib, sample.framebuffer_free_mib
    return used / (used + free) if used is not None and free is not None and used + free else None


_Part: TypeAlias = str | Callable[[GpuSample], Value]
Row: TypeAlias = tuple[str, str, str, _Part, str] | tuple[str, str, str, _Part, str, str]
"""Name, type and help; the name of a part of the sample, or a function of it; what NVML is asked,
for people, and perhaps a remark."""


def number(row: Row) -> NumberField:
    """Return the field that a row of the table describes."""
    name, kind, text, part, source, *remark = row
    return NumberField(
        name=f"DCGM_FI_{name}",
        type=kind,
        help=text,
        of=attrgetter(part) if isinstance(part, str) else part,
        source=source,
        is_float=part is used_share or part in _FLOATS,
        remark="".join(remark),
    )


_FLOATS: Final = frozenset(
    name for name, kind in get_type_hints(GpuSample).items() if kind == float | None
)
"""The parts of a sample that are no integers: their numbers are written with six decimals."""
