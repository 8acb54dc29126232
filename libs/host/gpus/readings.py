"""From one measurement of a GPU to its sample. Pure.

A measurement has a value under the name that it has in the sample, unless its unit is another:
then the name says which. A value that cannot be true is left out, and complained about.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

from libs.contracts.facts import Gpu
from libs.contracts.gpu_forms import Complaints
from libs.contracts.numbers import LIMIT
from libs.contracts.telemetry import MEASURED, GpuSample, InstanceSample
from libs.host.gpus.clean import MIB
from libs.host.gpus.protocol import Sampled

_HOTTEST: Final = 200
"""Degrees Celsius; dcgm-exporter leaves out values above it, too."""
_FASTEST: Final = 1_000_000
"""MHz."""
_STRONGEST: Final = 100_000
"""Watts."""

_HIGHEST: Final = {
    **dict.fromkeys(("sm_clock_mhz", "memory_clock_mhz", "video_clock_mhz"), _FASTEST),
    **dict.fromkeys(("temperature_c", "memory_temperature_c"), _HOTTEST),
    "gpu_utilization": 100,
    "memory_utilization": 100,
    "encoder_utilization": 100,
    "decoder_utilization": 100,
    "pcie_link_generation": 100,
    "pcie_link_width": 100,
    "performance_state": 15,
    "remap_failure": 1,
    "remap_pending": 1,
    "vgpu_licensed": 1,
}
"""The highest value that can be true; what is not listed has none but that of messages."""
_UNKNOWN_STATE: Final = 32
"""NVML's performance state of a GPU whose state it does not know."""

_MEBIBYTES: Final = {
    "framebuffer_free_mib": "memory_free",
    "framebuffer_used_mib": "memory_used",
    "framebuffer_reserved_mib": "memory_reserved",
}
_WATTS: Final = {
    "power_w": "power_mw",
    "power_limit_w": "power_limit_mw",
    "power_management_limit_w": "power_management_limit_mw",
}
_RATIOS: Final = tuple(
    name for name, kind in get_type_hints(InstanceSample).items() if kind == float | None
)
"""The shares that performance monitors measure, of GPUs and of their instances."""
_RATES: Final = ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")
_CONVERTED: Final = frozenset(
    (*_MEBIBYTES, *_WATTS, *_RATIOS, *(f"{name}_bytes_per_s" for name in _RATES))
) | {"nvlink_mb_per_s", "nvlink_first_mb_per_s"}
AS_READ: Final = tuple(name for name in MEASURED if name not in _CONVERTED)
"""What is an integer of a measurement, by the same name as in the sample."""


def sample(gpu: Gpu, now: Sampled, before: Sampled | None, complaints: Complaints) -> GpuSample:
    """Return the sample; `before` is the GPU's measurement of the last sweep."""
    values = now.values
    found: dict[str, Any] = {
        name: complaints.integer(name, _known(name, values), high=_HIGHEST.get(name, LIMIT))
        for name in AS_READ
    }
    found |= _framebuffer(values, complaints)
    for field, name in _WATTS.items():
        milliwatts = complaints.integer(name, values.get(name), high=_STRONGEST * 1000)
        found[field] = None if milliwatts is None else milliwatts / 1000
    found |= _shares(values, complaints)
    for name in _RATES:
        found[f"{name}_bytes_per_s"] = _rate(name, values, complaints)
    found["nvlink_mb_per_s"] = _nvlink_rate("nvlink", now, before, complaints)
    found["nvlink_first_mb_per_s"] = _nvlink_rate("nvlink_first", now, before, complaints)
    found["instances"] = tuple(_instances(gpu, now, complaints))
    return GpuSample(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci, **found)


def _instances(gpu: Gpu, now: Sampled, complaints: Complaints) -> Iterator[InstanceSample]:
    """Yield the samples of the GPU's instances; instances that it was not described with: none."""
    profiles: dict[int, str] = {}
    for mig in gpu.migs:
        profiles.setdefault(mig.gpu_instance, mig.profile)
    for each in sorted(now.instances, key=lambda each: each.gpu_instance):
        if each.gpu_instance in profiles:
            yield InstanceSample(
                gpu_instance=each.gpu_instance,
                profile=profiles[each.gpu_instance],
                **_framebuffer(each.values, complaints),
                **_shares(each.values, complaints),
            )


def _framebuffer(values: Mapping[str, float], complaints: Complaints) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, name in _MEBIBYTES.items():
        bytes_ = complaints.integer(name, values.get(name))
        found[field] = None if bytes_ is None else bytes_ // MIB
    return found


def _shares(values: Mapping[str, float], complaints: Complaints) -> dict[str, Any]:
    return {name: _ratio(name, values, complaints) for name in _RATIOS}


def _known(name: str, values: Mapping[str, float]) -> float | None:
    value = values.get(name)
    return None if name == "performance_state" and value == _UNKNOWN_STATE else value


def _ratio(name: str, values: Mapping[str, float], complaints: Complaints) -> float | None:
    """Return a share from 0 to 1; NaN means that there is nothing to compare."""
    percent = values.get(name)
    if percent is None or math.isnan(percent):
        return None
    if not 0 <= percent <= 101:
        complaints.add(name, percent)
        return None
    return min(percent / 100, 1.0)


def _rate(name: str, values: Mapping[str, float], complaints: Complaints) -> int | None:
    """Return bytes per second, from profiling in MiB or from PCIe's older counter in KB."""
    profiled = values.get(f"{name}_mib")
    if profiled is not None:
        bytes_ = None if math.isnan(profiled) else profiled * MIB
    else:
        counted = values.get(f"{name}_kb")
        bytes_ = None if counted is None else counted * 1000
    return complaints.integer(name, bytes_)


def _nvlink_rate(
    name: str, now: Sampled, before: Sampled | None, complaints: Complaints
) -> int | None:
    """Return what links carried per second, in thousands of KiB as dcgm-exporter has it."""
    total, last = _nvlink_total(name, now), None if before is None else _nvlink_total(name, before)
    if before is None or total is None or last is None or now.at <= before.at or total < last:
        return None
    return complaints.integer(name, (total - last) / (now.at - before.at) / 1000)


def _nvlink_total(name: str, of: Sampled) -> float | None:
    tx, rx = of.values.get(f"{name}_tx_kib"), of.values.get(f"{name}_rx_kib")
    return None if tx is None or rx is None else tx + rx
